// Writes the bits of each 64-bit argument to two words, the low word first.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(local_size_x = 1, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer UintBuffer {
    uint values[];
};

layout(push_constant, std430) uniform Arguments {
    UintBuffer words;
    int64_t a;
    uint64_t b;
    double c;
};

void main() {
    if (gl_GlobalInvocationID != uvec3(0u)) {
        return;
    }
    uvec2 a_words = unpackUint2x32(uint64_t(a));
    uvec2 b_words = unpackUint2x32(b);
    uvec2 c_words = unpackUint2x32(doubleBitsToUint64(c));
    words.values[0] = a_words.x;
    words.values[1] = a_words.y;
    words.values[2] = b_words.x;
    words.values[3] = b_words.y;
    words.values[4] = c_words.x;
    words.values[5] = c_words.y;
}
