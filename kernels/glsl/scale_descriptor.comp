// target[i] = factor * source[i], with the buffers in descriptors and two scalars in push
// constants.
#version 460

layout(local_size_x = 64, local_size_y = 1, local_size_z = 1) in;

layout(set = 0, binding = 0, std430) readonly buffer BufferSource {
    float source[];
};
layout(set = 0, binding = 1, std430) writeonly buffer BufferTarget {
    float target[];
};

layout(push_constant, std430) uniform Arguments {
    float factor;
    uint n;
};

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < n) {
        target[i] = factor * source[i];
    }
}
