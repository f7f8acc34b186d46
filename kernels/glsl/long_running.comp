// target[i] = `rounds` steps of a 32-bit xorshift generator that starts at i + 1
// Every step needs the one before. At most 60,000 are done, however many are asked for: Mesa's
// lavapipe stops a loop silently after 65,535. There is no bound: target has one element for each
// invocation on axis x.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 256, local_size_y = 1, local_size_z = 1) in;
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer UintBuffer {
    uint values[];
};

layout(push_constant, std430) uniform Arguments {
    UintBuffer target;
    uint rounds;
};

void main() {
    uint i = gl_GlobalInvocationID.x;
    uint steps = min(rounds, 60000u);
    uint state = i + 1u;
    for (uint step = 0u; step < steps; ++step) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
    }
    target.values[i] = state;
}
