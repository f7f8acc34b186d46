// Writes the bits of each scalar argument to one word.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 1, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer UintBuffer {
    uint values[];
};

layout(push_constant, std430) uniform Arguments {
    UintBuffer words;
    int a;
    uint b;
    float c;
};

void main() {
    if (gl_GlobalInvocationID != uvec3(0u)) {
        return;
    }
    words.values[0] = uint(a);
    words.values[1] = b;
    words.values[2] = floatBitsToUint(c);
}
