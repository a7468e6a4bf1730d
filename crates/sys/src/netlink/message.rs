//! One netlink message: a header, a fixed part, attributes that may contain attributes.

/// Attributes that contain others say so.
const NESTED: u16 = 0x8000;

const REQUEST: u16 = 1;
const ACK: u16 = 4;

/// A message without its place in a conversation.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    /// A request that the kernel answers with success or an error.
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        Self { kind, flags: flags | REQUEST | ACK, body: fixed.to_vec() }
    }

    /// A request that the kernel answers only by what it does with others.
    pub(crate) fn unanswered(kind: u16, fixed: &[u8]) -> Self {
        Self { kind, flags: REQUEST, body: fixed.to_vec() }
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.flags & ACK != 0
    }

    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        put(&mut self.body, kind, value);
        self
    }

    /// A text with the NUL that the kernel expects behind it.
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(crate) fn nested(mut self, kind: u16, content: Nested) -> Self {
        put(&mut self.body, kind | NESTED, &content.0);
        self
    }

    pub(crate) fn write(&self, sequence: u32, to: &mut Vec<u8>) {
        let length = 16 + self.body.len();
        to.extend((length as u32).to_ne_bytes());
        to.extend(self.kind.to_ne_bytes());
        to.extend(self.flags.to_ne_bytes());
        to.extend(sequence.to_ne_bytes());
        to.extend([0; 4]); // the kernel knows who asks
        to.extend(&self.body);
        to.resize(to.len().next_multiple_of(4), 0);
    }
}

/// Attributes inside an attribute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nested(Vec<u8>);

impl Nested {
    /// Behind a fixed part, which some have.
    pub(crate) fn behind(fixed: &[u8]) -> Self {
        Self(fixed.to_vec())
    }

    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        put(&mut self.0, kind, value);
        self
    }

    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Netfilter's numbers are in network order.
    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_be_bytes())
    }

    pub(crate) fn nested(mut self, kind: u16, content: Self) -> Self {
        put(&mut self.0, kind | NESTED, &content.0);
        self
    }
}

fn put(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend(((4 + value.len()) as u16).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_leave_out_the_padding_that_follows() {
        let message = Message::new(16, 0, &[7; 4])
            .text(3, "ab")
            .nested(18, Nested::default().attribute(1, &[9]));
        let mut bytes = Vec::new();
        message.write(5, &mut bytes);
        let expected: &[&[u8]] = &[
            &[40, 0, 0, 0, 16, 0, 5, 0, 5, 0, 0, 0, 0, 0, 0, 0],
            &[7, 7, 7, 7],
            &[7, 0, 3, 0, b'a', b'b', 0, 0],
            &[12, 0, 18, 0x80, 5, 0, 1, 0, 9, 0, 0, 0],
        ];
        assert_eq!(bytes, expected.concat());
    }
}
