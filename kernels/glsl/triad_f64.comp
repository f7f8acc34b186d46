// a[i] = b[i] + scalar * c[i] in double precision
// `precise` forbids a fused multiply-add, so that a CPU reference agrees to the bit.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(buffer_reference, std430, buffer_reference_align = 8) buffer DoubleBuffer {
    double values[];
};

layout(push_constant, std430) uniform Arguments {
    DoubleBuffer a;
    DoubleBuffer b;
    DoubleBuffer c;
    double scalar;
    uint n;
};

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < n) {
        precise double result = b.values[i] + scalar * c.values[i];
        a.values[i] = result;
    }
}
