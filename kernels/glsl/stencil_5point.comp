// target[y][x] = center * source[y][x] + neighbor * (north + south + west + east)
// The outermost rows and columns are copied. Arrays are row-major; axis x of the grid covers the
// columns. `precise` forbids a fused multiply-add and a new order, so that a CPU reference agrees
// to the bit.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 16, local_size_y = 16, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer FloatBuffer {
    float values[];
};

layout(push_constant, std430) uniform Arguments {
    FloatBuffer source;
    FloatBuffer target;
    uint width;
    uint height;
    float center;
    float neighbor;
};

void main() {
    uint x = gl_GlobalInvocationID.x;
    uint y = gl_GlobalInvocationID.y;
    if (x >= width || y >= height) {
        return;
    }
    uint i = y * width + x;
    if (x == 0u || y == 0u || x == width - 1u || y == height - 1u) {
        target.values[i] = source.values[i];
        return;
    }
    precise float around = source.values[i - width] + source.values[i + width];
    around += source.values[i - 1u];
    around += source.values[i + 1u];
    precise float result = center * source.values[i] + neighbor * around;
    target.values[i] = result;
}
