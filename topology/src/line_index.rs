//! Finds the line of a place in a text, of which a large file has one for each of its values.

/// Where the lines of a text end, found once.
///
/// ```
/// # use lockstep_topology::LineIndex;
/// let lines = LineIndex::of("first\nsecond\n");
/// assert_eq!([0, 5, 6, 13, 99].map(|offset| lines.line(offset)), [1, 1, 2, 3, 3]);
/// ```
#[derive(Debug, Clone)]
pub struct LineIndex {
    ends: Vec<usize>,
}

impl LineIndex {
    /// The lines of `text`.
    pub fn of(text: &str) -> LineIndex {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
        LineIndex { ends: ends.collect() }
    }

    /// The line, from 1, of the byte at `offset`; of one behind the end, the last.
    pub fn line(&self, offset: usize) -> usize {
        self.ends.partition_point(|end| *end < offset) + 1
    }
}
