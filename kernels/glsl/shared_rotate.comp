// Rotates the 64 values of each block left by one, through shared memory.
// There is no bound: data has 64 elements for each block.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 64, local_size_y = 1, local_size_z = 1) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer UintBuffer {
    uint values[];
};

layout(push_constant, std430) uniform Arguments {
    UintBuffer data;
};

shared uint values[gl_WorkGroupSize.x];

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint i = gl_GlobalInvocationID.x;
    values[lane] = data.values[i];
    barrier();
    data.values[i] = values[(lane + 1u) % gl_WorkGroupSize.x];
}
