// target[linear index] = a value made of the invocation's global id and of the grid's size in
// blocks.
// The linear index runs over x first, then y, then z, over the whole grid. An index of `len` or
// more writes nothing.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 4, local_size_y = 4, local_size_z = 4) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer UintBuffer {
    uint values[];
};

layout(push_constant, std430) uniform Arguments {
    UintBuffer target;
    uint len;
};

void main() {
    uvec3 id = gl_GlobalInvocationID;
    uvec3 size = gl_NumWorkGroups * gl_WorkGroupSize;
    uint index = (id.z * size.y + id.y) * size.x + id.x;
    if (index < len) {
        // Odd factors: one-to-one on each axis, and different when two axes are swapped.
        uvec3 a = id * uvec3(0x9E3779B1u, 0x85EBCA77u, 0xC2B2AE3Du);
        uvec3 b = gl_NumWorkGroups * uvec3(0x27D4EB2Fu, 0x165667B1u, 0xD6E8FEB9u);
        target.values[index] = a.x ^ a.y ^ a.z ^ b.x ^ b.y ^ b.z;
    }
}
