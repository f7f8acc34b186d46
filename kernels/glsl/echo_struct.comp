// Writes the bits of each argument's components, one word each.
// The vectors are aligned to 16 bytes: there is a gap before v3, and `tail` lies in v3's fourth
// place.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 1, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer UintBuffer {
    uint values[];
};

layout(push_constant, std430) uniform Arguments {
    UintBuffer words;
    vec3 v3;
    float tail;
    vec4 v4;
    uint last;
};

void main() {
    if (gl_GlobalInvocationID != uvec3(0u)) {
        return;
    }
    words.values[0] = floatBitsToUint(v3.x);
    words.values[1] = floatBitsToUint(v3.y);
    words.values[2] = floatBitsToUint(v3.z);
    words.values[3] = floatBitsToUint(tail);
    words.values[4] = floatBitsToUint(v4.x);
    words.values[5] = floatBitsToUint(v4.y);
    words.values[6] = floatBitsToUint(v4.z);
    words.values[7] = floatBitsToUint(v4.w);
    words.values[8] = last;
}
