//! Names bytes by characters as GPT-2's tokenizer does, so that every token is a text without spaces and control characters.

use std::collections::HashMap;

/// The character that stands for a byte: a printable one for itself, another for the next above U+0100 that is free (Radford et al.
/// 2019, `bytes_to_unicode`).
pub(super) fn character_of(byte: u8) -> char {
    let is_own = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match is_own(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|byte| !is_own(*byte)).count() as u32;
            char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    }
}

/// The byte for which each character stands.
pub(super) fn bytes_by_character() -> HashMap<char, u8> {
    (0..=255).map(|byte| (character_of(byte), byte)).collect()
}

/// The bytes for which the characters of a token stand; `None` where one stands for none.
pub(super) fn bytes_of(token: &str, by_character: &HashMap<char, u8>) -> Option<Box<[u8]>> {
    token.chars().map(|character| by_character.get(&character).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::character_of;
    use std::collections::BTreeSet;

    /// Space is Ġ and the end of a line Ċ; no two bytes have one character, and none is a space or a control character.
    #[test]
    fn each_byte_has_a_character_of_its_own() {
        assert_eq!([b' ', b'\n', 0, 0xad, b'a'].map(character_of), ['Ġ', 'Ċ', 'Ā', 'Ń', 'a']);
        let all: BTreeSet<char> = (0..=255).map(character_of).collect();
        assert!(all.len() == 256 && all.iter().all(|one| !one.is_whitespace() && !one.is_control()));
    }
}
