//! `Pattern`: cuts a text into the pieces within which tokens are merged, as the regular expressions of published tokenizers do.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// What SentencePiece writes instead of a space.
pub(super) const MARK: &str = "▁";

/// How a text is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Not at all.
    Whole,
    /// As GPT-2 does.
    Gpt2,
    /// Before each mark of a space.
    Marks,
    /// As Llama 3 and Qwen 2 do, with at most so many digits in a piece.
    Digits(usize),
}

/// The expressions that are known. That of GPT-2 is also what `ByteLevel` uses unless told otherwise.
const KNOWN: [(&str, Pattern); 3] = [
    (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", Pattern::Gpt2),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Pattern::Digits(3),
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Pattern::Digits(1),
    ),
];

/// What follows an apostrophe in a piece of its own.
const CONTRACTIONS: [&str; 7] = ["s", "t", "re", "ve", "m", "ll", "d"];

/// What an expression tells apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// `\p{L}`.
    Letter,
    /// `\p{N}`.
    Number,
    /// `\s`.
    Space,
    Other,
}

fn class(character: char) -> Class {
    match character {
        'a'..='z' | 'A'..='Z' => Class::Letter,
        '0'..='9' => Class::Number,
        _ if character.is_whitespace() => Class::Space,
        _ if character.is_ascii() => Class::Other,
        _ => match character.general_category_group() {
            GeneralCategoryGroup::Letter => Class::Letter,
            GeneralCategoryGroup::Number => Class::Number,
            _ => Class::Other,
        },
    }
}

impl Pattern {
    /// The pattern of a regular expression, if it is known.
    pub(super) fn of(expression: &str) -> Option<Pattern> {
        KNOWN.iter().find(|(known, _)| *known == expression).map(|(_, pattern)| *pattern)
    }

    /// The pieces of a text, one after the other, none of them empty.
    pub(super) fn pieces(self, text: &str) -> impl Iterator<Item = &str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let (piece, behind) = rest.split_at(self.first(rest));
            rest = behind;
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// Bytes of the first piece.
    fn first(self, text: &str) -> usize {
        match self {
            Pattern::Whole => text.len(),
            Pattern::Marks => text.match_indices(MARK).map(|(at, _)| at).find(|at| *at > 0).unwrap_or(text.len()),
            Pattern::Gpt2 => contraction(text, false).unwrap_or_else(|| {
                let body = text.strip_prefix(' ').unwrap_or(text);
                let before = text.len() - body.len();
                match body.chars().next().map(class) {
                    None | Some(Class::Space) => spaces(text),
                    Some(of) => before + run(body, of),
                }
            }),
            Pattern::Digits(most) => contraction(text, true).unwrap_or_else(|| with_digits(text, most)),
        }
    }
}

/// Bytes of an apostrophe with what is contracted behind it, in any case where `any` is set; `ſ` is an `s` there.
fn contraction(text: &str, any: bool) -> Option<usize> {
    let behind = text.strip_prefix('\'')?;
    let folded = |one: char| if one == 'ſ' { 's' } else { one.to_ascii_lowercase() };
    let found = |contracted: &&&str| {
        let mut own = behind.chars();
        contracted.chars().all(|one| own.next().is_some_and(|own| own == one || any && folded(own) == one))
    };
    let contracted = CONTRACTIONS.iter().find(found)?;
    Some(1 + behind.chars().take(contracted.len()).map(char::len_utf8).sum::<usize>())
}

/// Bytes of the characters of this class with which a text begins.
fn run(text: &str, of: Class) -> usize {
    text.find(|one| class(one) != of).unwrap_or(text.len())
}

/// `\s+(?!\S)|\s+`: spaces but the last one before something else, or a single one.
fn spaces(text: &str) -> usize {
    let all = run(text, Class::Space);
    let last = text[..all].chars().next_back().map_or(0, char::len_utf8);
    if all == text.len() || all == last { all } else { all - last }
}

/// The first piece of the expressions with digits, of a text that begins with no contraction.
fn with_digits(text: &str, most: usize) -> usize {
    let is_end = |one: char| matches!(one, '\r' | '\n');
    let mut characters = text.chars();
    let Some(first) = characters.next() else { return 0 };
    let second = characters.next().map(class);
    match class(first) {
        Class::Letter => run(text, Class::Letter),
        Class::Number => {
            text.chars().take(most).take_while(|one| class(*one) == Class::Number).map(char::len_utf8).sum()
        }
        _ if !is_end(first) && second == Some(Class::Letter) => {
            first.len_utf8() + run(&text[first.len_utf8()..], Class::Letter)
        }
        of if of == Class::Other || first == ' ' && second == Some(Class::Other) => {
            let before = usize::from(first == ' ');
            let own = before + run(&text[before..], Class::Other);
            own + text[own..].find(|one| !is_end(one)).unwrap_or(text.len() - own)
        }
        _ => match text[..run(text, Class::Space)].rfind(is_end) {
            Some(last) => last + 1,
            None => spaces(text),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, Pattern};

    /// Worked out by hand from the expressions, and the same as Hugging Face's.
    #[test]
    fn texts_are_cut_as_the_expressions_say() {
        let cut = |pattern: Pattern, text: &'static str| pattern.pieces(text).collect::<Vec<_>>().join("|");
        let (gpt2, llama, qwen) = (KNOWN[0].1, KNOWN[1].1, KNOWN[2].1);
        for (text, wanted) in [
            ("", ["", "", ""]),
            (
                "He'll say  12345!!\n",
                ["He|'ll| say| | 12345|!!|\n", "He|'ll| say| | |123|45|!!\n", "He|'ll| say| | |1|2|3|4|5|!!\n"],
            ),
            ("IT'S 'quoted'", ["IT|'|S| '|quoted|'", "IT|'S| '|quoted|'", "IT|'S| '|quoted|'"]),
            ("a\n\n  b \n", ["a|\n\n | b| \n", "a|\n\n| | b| \n", "a|\n\n| | b| \n"]),
            ("(x)\t\ty  ", ["(|x|)|\t|\t|y|  ", "(x|)|\t|\ty|  ", "(x|)|\t|\ty|  "]),
            ("日本語½é ①", ["日本語|½|é| ①", "日本語|½|é| |①", "日本語|½|é| |①"]),
        ] {
            assert_eq!([gpt2, llama, qwen].map(|pattern| cut(pattern, text)), wanted, "{text:?}");
            assert_eq!(cut(Pattern::Whole, text), text);
        }
        assert_eq!(Pattern::of(r"\s+"), None);
    }
}
