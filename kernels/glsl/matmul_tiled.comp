// c = a * b, row-major: a is m x k, b is k x n, c is m x n, through 16 x 16 tiles in shared memory.
// Axis x of the grid covers the columns of c, axis y its rows.
//
// A sum runs over k in ascending order, and elements past an edge count as zero, so that a plain
// CPU loop agrees to the bit (`precise` forbids a fused multiply-add). k may be at most 60,000:
// Mesa's lavapipe stops the loops of one invocation silently after 65,535 steps in total.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 16, local_size_y = 16, local_size_z = 1) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer FloatBuffer {
    float values[];
};

layout(push_constant, std430) uniform Arguments {
    FloatBuffer a;
    FloatBuffer b;
    FloatBuffer c;
    uint m;
    uint n;
    uint k;
};

const uint TILE = 16u;
shared float a_tile[TILE][TILE];
shared float b_tile[TILE][TILE];

void main() {
    uint column = gl_GlobalInvocationID.x;
    uint row = gl_GlobalInvocationID.y;
    uvec2 local = gl_LocalInvocationID.xy;
    precise float sum = 0.0;
    for (uint first = 0u; first < k; first += TILE) {
        uint a_column = first + local.x;
        uint b_row = first + local.y;
        a_tile[local.y][local.x] = row < m && a_column < k ? a.values[row * k + a_column] : 0.0;
        b_tile[local.y][local.x] = b_row < k && column < n ? b.values[b_row * n + column] : 0.0;
        barrier();
        for (uint step = 0u; step < TILE; ++step) {
            sum += a_tile[local.y][step] * b_tile[step][local.x];
        }
        // The next round overwrites tiles that other invocations may still read.
        barrier();
    }
    if (row < m && column < n) {
        c.values[row * n + column] = sum;
    }
}
