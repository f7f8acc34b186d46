// target[0] = the sum of 30 words; the arguments take 128 bytes of push constants.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 1, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer UintBuffer {
    uint values[];
};

layout(push_constant, std430) uniform Arguments {
    UintBuffer target;
    uint w0;
    uint w1;
    uint w2;
    uint w3;
    uint w4;
    uint w5;
    uint w6;
    uint w7;
    uint w8;
    uint w9;
    uint w10;
    uint w11;
    uint w12;
    uint w13;
    uint w14;
    uint w15;
    uint w16;
    uint w17;
    uint w18;
    uint w19;
    uint w20;
    uint w21;
    uint w22;
    uint w23;
    uint w24;
    uint w25;
    uint w26;
    uint w27;
    uint w28;
    uint w29;
};

void main() {
    if (gl_GlobalInvocationID != uvec3(0u)) {
        return;
    }
    target.values[0] = w0 + w1 + w2 + w3 + w4 + w5 + w6 + w7 + w8 + w9
        + w10 + w11 + w12 + w13 + w14 + w15 + w16 + w17 + w18 + w19
        + w20 + w21 + w22 + w23 + w24 + w25 + w26 + w27 + w28 + w29;
}
