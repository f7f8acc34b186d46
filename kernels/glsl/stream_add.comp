// BabelStream add: c[i] = a[i] + b[i]
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer FloatBuffer {
    float values[];
};

layout(push_constant, std430) uniform Arguments {
    FloatBuffer a;
    FloatBuffer b;
    FloatBuffer c;
    uint n;
};

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < n) {
        c.values[i] = a.values[i] + b.values[i];
    }
}
