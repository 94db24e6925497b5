//! An assembler for BPF programs, so that no compiler is needed.
//!
//! It has named instructions, labels, and a listing in the kernel's own notation. It supports the
//! part of the instruction set (RFC 9669) that the gate's programs need. The kernel's verifier
//! checks the programs.
//!
//! The listing is decoded from the finished instructions: it shows what the kernel gets.

use std::fmt;

/// One of BPF's registers. Helpers take their arguments in R1 to R5. R0 holds the result of a
/// helper and of the program; R6 to R9 survive a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R6 = 6,
    R7,
    R8,
    R9,
}

/// A jump target: made by [`Assembler::label`], given a position by [`Assembler::place`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Label(usize);

/// How wide a load is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Width {
    U32,
    U64,
}

/// An operation of 64 bits on a register.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Math {
    Add = ADD,
    Subtract = SUB,
    Multiply = MUL,
    Or = OR,
    Xor = XOR,
}

/// A condition between a register and a number, both of 32 bits.
#[derive(Clone, Copy, Debug)]
pub(super) enum If {
    Equal,
    NotEqual,
}

/// One instruction as the kernel reads it (`struct bpf_insn`, RFC 9669 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

// Instruction classes (RFC 9669 §3.1) and what modifies them (§4, §5).
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const STX: u8 = 0x03;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU: u8 = 0x04;
const ALU64: u8 = 0x07;
const IMMEDIATE: u8 = 0x00;
const REGISTER: u8 = 0x08;
const W: u8 = 0x00;
const B: u8 = 0x10;
const DW: u8 = 0x18;
const ABS: u8 = 0x20;
const MEM: u8 = 0x60;
const ATOMIC: u8 = 0xc0;
const ADD: u8 = 0x00;
const SUB: u8 = 0x10;
const MUL: u8 = 0x20;
const OR: u8 = 0x40;
const AND: u8 = 0x50;
const LSH: u8 = 0x60;
const RSH: u8 = 0x70;
const XOR: u8 = 0xa0;
const MOV: u8 = 0xb0;
const JA: u8 = 0x00;
const JEQ: u8 = 0x10;
const JNE: u8 = 0x50;
const JSGE: u8 = 0x70;
const END: u8 = 0xd0;
/// The conversion is to the byte order of the network.
const TO_BIG: u8 = 0x08;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// The atomic operation also returns what was there before.
const FETCH: i32 = 0x01;
/// The 64-bit immediate is an address inside a map's value: descriptor, then offset.
const MAP_VALUE: u8 = 2;

const LOAD_WIDE: u8 = LD | IMMEDIATE | DW;
const LOAD_PACKET: u8 = LD | ABS | B;
const LOAD_PACKET_WORD: u8 = LD | ABS | W;
const SWAP: u8 = ALU | END | TO_BIG;
const ATOMIC_ADD: u8 = STX | ATOMIC | DW;

/// Writes a program from top to bottom.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<Instruction>,
    /// Where each label is; `None` until it is placed.
    labels: Vec<Option<usize>>,
    /// Jumps, and where they go.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub(super) fn new() -> Self {
        Assembler::default()
    }

    /// A new jump target without a position.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Gives `label` the present position.
    pub(super) fn place(&mut self, label: Label) {
        debug_assert!(self.labels[label.0].is_none(), "{label:?} is placed twice");
        self.labels[label.0] = Some(self.instructions.len());
    }

    /// `to = *(base + offset)`.
    pub(super) fn load(&mut self, width: Width, to: Register, base: Register, offset: i16) {
        let size = match width {
            Width::U32 => W,
            Width::U64 => DW,
        };
        self.push(LDX | MEM | size, to as u8 | (base as u8) << 4, offset, 0);
    }

    /// `R0 =` the byte at `offset` of the packet whose context is in R6. Ends the program with 0 if
    /// the packet is shorter, and spoils R1 to R5.
    pub(super) fn load_packet_byte(&mut self, offset: i32) {
        self.push(LOAD_PACKET, 0, 0, offset);
    }

    /// The same for a word of 32 bits, as a number of this machine.
    pub(super) fn load_packet_word(&mut self, offset: i32) {
        self.push(LOAD_PACKET_WORD, 0, 0, offset);
    }

    /// `*(base + offset) = from`, 64 bits.
    pub(super) fn store(&mut self, base: Register, offset: i16, from: Register) {
        self.push(STX | MEM | DW, base as u8 | (from as u8) << 4, offset, 0);
    }

    /// `to = to <what> from`.
    pub(super) fn math(&mut self, to: Register, what: Math, from: Register) {
        self.push(ALU64 | what as u8 | REGISTER, to as u8 | (from as u8) << 4, 0, 0);
    }

    /// `to <<= bits`.
    pub(super) fn shift_left(&mut self, to: Register, bits: i32) {
        self.push(ALU64 | LSH | IMMEDIATE, to as u8, 0, bits);
    }

    /// `to >>= bits`, without its sign.
    pub(super) fn shift_right(&mut self, to: Register, bits: i32) {
        self.push(ALU64 | RSH | IMMEDIATE, to as u8, 0, bits);
    }

    /// The low 32 bits of `to` as they are in a packet.
    pub(super) fn swap_to_network_order(&mut self, to: Register) {
        self.push(SWAP, to as u8, 0, 32);
    }

    /// `to = number`, sign-extended.
    pub(super) fn set(&mut self, to: Register, number: i32) {
        self.push(ALU64 | MOV | IMMEDIATE, to as u8, 0, number);
    }

    /// `to = from`.
    pub(super) fn copy(&mut self, to: Register, from: Register) {
        self.push(ALU64 | MOV | REGISTER, to as u8 | (from as u8) << 4, 0, 0);
    }

    /// `to &= number`.
    pub(super) fn and(&mut self, to: Register, number: i32) {
        self.push(ALU64 | AND | IMMEDIATE, to as u8, 0, number);
    }

    /// `to = number`, all 64 bits.
    pub(super) fn set_wide(&mut self, to: Register, number: u64) {
        self.push(LOAD_WIDE, to as u8, 0, number as i32);
        self.push(0, 0, 0, (number >> 32) as i32);
    }

    /// `to =` the address of the only value of the array map with descriptor `map`.
    pub(super) fn map_value(&mut self, to: Register, map: i32) {
        self.push(LOAD_WIDE, to as u8 | MAP_VALUE << 4, 0, map);
        self.push(0, 0, 0, 0);
    }

    /// `*(base + offset) += number`, 64 bits, as one atomic step.
    pub(super) fn atomic_add(&mut self, base: Register, offset: i16, number: Register) {
        self.push(ATOMIC_ADD, base as u8 | (number as u8) << 4, offset, i32::from(ADD));
    }

    /// The same, and `number` becomes what was there before.
    pub(super) fn fetch_add(&mut self, base: Register, offset: i16, number: Register) {
        self.push(ATOMIC_ADD, base as u8 | (number as u8) << 4, offset, i32::from(ADD) | FETCH);
    }

    /// Jumps to `label`.
    pub(super) fn jump(&mut self, label: Label) {
        self.push_jump(JMP | JA, 0, 0, label);
    }

    /// Jumps to `label` if the condition holds for the low 32 bits of `register`.
    pub(super) fn jump_if(&mut self, register: Register, what: If, number: i32, label: Label) {
        let operation = match what {
            If::Equal => JEQ,
            If::NotEqual => JNE,
        };
        self.push_jump(JMP32 | operation | IMMEDIATE, register as u8, number, label);
    }

    /// Jumps to `label` if the pointer in `register` is null.
    pub(super) fn jump_if_null(&mut self, register: Register, label: Label) {
        self.push_jump(JMP | JEQ | IMMEDIATE, register as u8, 0, label);
    }

    /// Jumps to `label` if `left` is not `right`, all 64 bits.
    pub(super) fn jump_if_differs(&mut self, left: Register, right: Register, label: Label) {
        let registers = left as u8 | (right as u8) << 4;
        self.push_jump(JMP | JNE | REGISTER, registers, 0, label);
    }

    /// Jumps to `label` if `left` is at least `right`, both as signed numbers of 64 bits.
    pub(super) fn jump_if_at_least(&mut self, left: Register, right: Register, label: Label) {
        let registers = left as u8 | (right as u8) << 4;
        self.push_jump(JMP | JSGE | REGISTER, registers, 0, label);
    }

    /// `R0 =` the result of a helper of the kernel.
    pub(super) fn call(&mut self, helper: i32) {
        self.push(JMP | CALL, 0, 0, helper);
    }

    /// Ends the program with `result`.
    pub(super) fn exit_with(&mut self, result: i32) {
        self.set(Register::R0, result);
        self.push(JMP | EXIT, 0, 0, 0);
    }

    /// The program, with its jumps filled in.
    pub(super) fn finish(mut self) -> Program {
        for &(position, label) in &self.jumps {
            let target = self.labels[label.0].expect("every label that is jumped to is placed");
            let distance = target as isize - position as isize - 1;
            self.instructions[position].offset =
                i16::try_from(distance).expect("programs here have a few dozen instructions");
        }
        Program(self.instructions)
    }

    fn push(&mut self, code: u8, registers: u8, offset: i16, immediate: i32) {
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }

    fn push_jump(&mut self, code: u8, registers: u8, immediate: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(code, registers, 0, immediate);
    }
}

/// A finished program. Its `Display` is a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program(Vec<Instruction>);

impl Program {
    pub(super) fn instructions(&self) -> &[Instruction] {
        &self.0
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut wide = false;
        for (position, instruction) in self.0.iter().enumerate() {
            // The second half of a 64-bit immediate is not an instruction of its own.
            if !std::mem::replace(&mut wide, instruction.code == LOAD_WIDE) {
                write!(f, "{position:3}: ")?;
                let high = self.0.get(position + 1).map_or(0, |next| next.immediate);
                instruction.list(position, high, f)?;
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

impl Instruction {
    /// In the kernel's notation, as in its verifier's log and in `bpftool prog dump`. `high` is the
    /// next instruction's immediate: the upper half, if this one has 64 bits.
    fn list(&self, position: usize, high: i32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Instruction { code, registers, offset, immediate } = *self;
        let (to, from) = (registers & 0x0f, registers >> 4);
        let target = position as isize + 1 + isize::from(offset);
        match code {
            LOAD_WIDE if from == MAP_VALUE => write!(f, "r{to} = map_value(fd {immediate})"),
            LOAD_WIDE => write!(
                f,
                "r{to} = {:#x}",
                u64::from(high as u32) << 32 | u64::from(immediate as u32)
            ),
            LOAD_PACKET => write!(f, "r0 = *(u8 *)skb[{immediate}]"),
            LOAD_PACKET_WORD => write!(f, "r0 = *(u32 *)skb[{immediate}]"),
            SWAP => write!(f, "r{to} = be{immediate} r{to}"),
            ATOMIC_ADD if immediate & FETCH != 0 => {
                write!(f, "r{from} = atomic64_fetch_add((u64 *)(r{to} {offset:+}), r{from})")
            }
            ATOMIC_ADD => write!(f, "lock *(u64 *)(r{to} {offset:+}) += r{from}"),
            _ => match code & 0x07 {
                LDX => write!(f, "r{to} = *({} *)(r{from} {offset:+})", width(code)),
                STX => write!(f, "*({} *)(r{to} {offset:+}) = r{from}", width(code)),
                ALU64 if code & REGISTER == 0 => write!(f, "r{to} {} {immediate}", change(code)),
                ALU64 => write!(f, "r{to} {} r{from}", change(code)),
                JMP32 => write!(f, "if w{to} {} {immediate:#x} goto {target}", relation(code)),
                _ if code == JMP | JA => write!(f, "goto {target}"),
                _ if code == JMP | CALL => write!(f, "call {immediate}"),
                _ if code == JMP | EXIT => write!(f, "exit"),
                JMP if code & REGISTER == 0 => {
                    write!(f, "if r{to} {} {immediate} goto {target}", relation(code))
                }
                JMP => write!(f, "if r{to} {} r{from} goto {target}", relation(code)),
                _ => write!(f, "{self:?}"),
            },
        }
    }
}

fn width(code: u8) -> &'static str {
    if code & 0x18 == DW { "u64" } else { "u32" }
}

fn change(code: u8) -> &'static str {
    match code & 0xf0 {
        ADD => "+=",
        SUB => "-=",
        MUL => "*=",
        OR => "|=",
        AND => "&=",
        LSH => "<<=",
        RSH => ">>=",
        XOR => "^=",
        MOV => "=",
        _ => "?=",
    }
}

fn relation(code: u8) -> &'static str {
    match code & 0xf0 {
        JEQ => "==",
        JNE => "!=",
        JSGE => "s>=",
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::Register::{R0, R1, R2, R6, R7, R8, R9};
    use super::*;

    fn bytes(program: &Program) -> Vec<[u8; 8]> {
        program
            .instructions()
            .iter()
            .map(|instruction| {
                let mut bytes = [0; 8];
                (bytes[0], bytes[1]) = (instruction.code, instruction.registers);
                bytes[2..4].copy_from_slice(&instruction.offset.to_le_bytes());
                bytes[4..].copy_from_slice(&instruction.immediate.to_le_bytes());
                bytes
            })
            .collect()
    }

    /// Purpose: each instruction is encoded as RFC 9669 says; the bytes are worked out from its
    /// tables, and the listing agrees.
    #[test]
    fn each_instruction_is_encoded_as_specified() {
        let mut a = Assembler::new();
        let end = a.label();
        a.load(Width::U32, R2, R1, 60);
        a.load(Width::U64, R2, R6, -8);
        a.load_packet_byte(13);
        a.set(R0, -1);
        a.copy(R6, R1);
        a.and(R0, 0x12);
        a.load_packet_word(-0x10_0000 + 12);
        a.swap_to_network_order(R0);
        a.store(R1, 16, R2);
        a.math(R7, Math::Add, R2);
        a.math(R9, Math::Subtract, R8);
        a.math(R2, Math::Multiply, R0);
        a.math(R2, Math::Or, R0);
        a.math(R2, Math::Xor, R0);
        a.shift_left(R2, 32);
        a.shift_right(R2, 54);
        a.map_value(R1, 7);
        a.set_wide(R2, 0x1122_3344_5566_7788);
        a.atomic_add(R1, 128, R2);
        a.fetch_add(R1, 128, R2);
        a.jump_if(R2, If::NotEqual, 8080, end);
        a.jump_if(R2, If::Equal, 6, end);
        a.jump_if_null(R2, end);
        a.jump_if_differs(R0, R2, end);
        a.jump_if_at_least(R2, R6, end);
        a.jump(end);
        a.call(59);
        a.place(end);
        a.exit_with(1);
        let program = a.finish();
        let expected: &[[u8; 8]] = &[
            [0x61, 0x12, 60, 0, 0, 0, 0, 0],
            [0x79, 0x62, 0xf8, 0xff, 0, 0, 0, 0],
            [0x30, 0, 0, 0, 13, 0, 0, 0],
            [0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
            [0x57, 0, 0, 0, 0x12, 0, 0, 0],
            [0x20, 0, 0, 0, 12, 0, 0xf0, 0xff],
            [0xdc, 0, 0, 0, 32, 0, 0, 0],
            [0x7b, 0x21, 16, 0, 0, 0, 0, 0],
            [0x0f, 0x27, 0, 0, 0, 0, 0, 0],
            [0x1f, 0x89, 0, 0, 0, 0, 0, 0],
            [0x2f, 0x02, 0, 0, 0, 0, 0, 0],
            [0x4f, 0x02, 0, 0, 0, 0, 0, 0],
            [0xaf, 0x02, 0, 0, 0, 0, 0, 0],
            [0x67, 0x02, 0, 0, 32, 0, 0, 0],
            [0x77, 0x02, 0, 0, 54, 0, 0, 0],
            [0x18, 0x21, 0, 0, 7, 0, 0, 0],
            [0; 8],
            [0x18, 0x02, 0, 0, 0x88, 0x77, 0x66, 0x55],
            [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11],
            [0xdb, 0x21, 128, 0, 0, 0, 0, 0],
            [0xdb, 0x21, 128, 0, 1, 0, 0, 0],
            [0x56, 0x02, 6, 0, 0x90, 0x1f, 0, 0],
            [0x16, 0x02, 5, 0, 6, 0, 0, 0],
            [0x15, 0x02, 4, 0, 0, 0, 0, 0],
            [0x5d, 0x20, 3, 0, 0, 0, 0, 0],
            [0x7d, 0x62, 2, 0, 0, 0, 0, 0],
            [0x05, 0, 1, 0, 0, 0, 0, 0],
            [0x85, 0, 0, 0, 59, 0, 0, 0],
            [0xb7, 0, 0, 0, 1, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes(&program), expected);
        let listing = "  0: r2 = *(u32 *)(r1 +60)
  1: r2 = *(u64 *)(r6 -8)
  2: r0 = *(u8 *)skb[13]
  3: r0 = -1
  4: r6 = r1
  5: r0 &= 18
  6: r0 = *(u32 *)skb[-1048564]
  7: r0 = be32 r0
  8: *(u64 *)(r1 +16) = r2
  9: r7 += r2
 10: r9 -= r8
 11: r2 *= r0
 12: r2 |= r0
 13: r2 ^= r0
 14: r2 <<= 32
 15: r2 >>= 54
 16: r1 = map_value(fd 7)
 18: r2 = 0x1122334455667788
 20: lock *(u64 *)(r1 +128) += r2
 21: r2 = atomic64_fetch_add((u64 *)(r1 +128), r2)
 22: if w2 != 0x1f90 goto 29
 23: if w2 == 0x6 goto 29
 24: if r2 == 0 goto 29
 25: if r0 != r2 goto 29
 26: if r2 s>= r6 goto 29
 27: goto 29
 28: call 59
 29: r0 = 1
 30: exit
";
        assert_eq!(program.to_string(), listing);
    }
}
