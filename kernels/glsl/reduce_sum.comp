// partials[block] = the block's share of the sum of source[i]
//
// Each invocation walks the input with a stride of the whole grid, then the block adds its 256 sums
// as a tree. The walk may take at most 65,000 steps: Mesa's lavapipe stops a loop silently after
// 65,535. The grid may have at most 2^24 - 1 blocks, so that the stride fits in 32 bits. `precise`
// forbids a fused multiply-add and a new order, so that a CPU reference agrees to the bit.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer FloatBuffer {
    float values[];
};

layout(push_constant, std430) uniform Arguments {
    FloatBuffer source;
    FloatBuffer partials;
    uint n;
};

shared float sums[gl_WorkGroupSize.x];

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    precise float sum = 0.0;
    uint i = gl_GlobalInvocationID.x;
    while (i < n) {
        sum += source.values[i];
        // Leaves before `i + stride` can wrap.
        if (n - i <= stride) {
            break;
        }
        i += stride;
    }
    sums[lane] = sum;
    barrier();
    for (uint width = gl_WorkGroupSize.x / 2u; width > 0u; width /= 2u) {
        if (lane < width) {
            precise float pair = sums[lane] + sums[lane + width];
            sums[lane] = pair;
        }
        barrier();
    }
    if (lane == 0u) {
        partials.values[gl_WorkGroupID.x] = sums[0];
    }
}
