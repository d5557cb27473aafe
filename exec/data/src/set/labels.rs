//! The labels of a set's samples: one each, one for each position, or none.

use lockstep_models::SampleTensor;

use super::Dataset;
use super::pixels::Pixels;

impl Dataset {
    /// What labels a sample has; `None` where it has none.
    pub fn label(&self) -> Option<SampleTensor> {
        self.label
    }

    /// How many labels a sample has.
    pub fn labels_each(&self) -> usize {
        self.label.map_or(0, |label| label.elements() as usize)
    }

    /// The labels of all samples, one after the other; empty where they follow from the samples.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Whether the labels of a sample follow from it: the token after each.
    pub(super) fn follow(&self) -> bool {
        matches!(self.pixels, Pixels::Tokens(_))
    }

    /// The labels of the samples `indices`, one after the other.
    pub fn labels_of(&self, indices: &[u32]) -> Vec<u32> {
        let mut labels = vec![0; indices.len() * self.labels_each()];
        self.copy_labels(indices, &mut labels);
        labels
    }

    /// Copies the labels of the samples `indices`, `[indices, …]`.
    pub fn copy_labels(&self, indices: &[u32], labels: &mut [u32]) {
        let each = self.labels_each();
        assert_eq!(labels.len(), indices.len() * each, "room for the labels");
        for (index, labels) in indices.iter().zip(labels.chunks_exact_mut(each.max(1))) {
            match &self.pixels {
                Pixels::Tokens(tokens) => tokens.copy_labels(*index, labels),
                _ => labels.copy_from_slice(&self.labels[*index as usize * each..][..each]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_models::{Dimension, Shape};

    use super::*;

    /// Three samples of two values, with a label for each of four positions.
    fn by_position() -> Dataset {
        let label = SampleTensor::labels(Shape::new(&[(Dimension::Position, 4)]));
        let (images, labels) = ((0..6u8).map(f32::from).collect(), (0..12).collect());
        Dataset::labelled("p", (Shape::flat(2), 3), images, 12, (Some(label), labels)).unwrap()
    }

    #[test]
    fn samples_keep_their_labels_wherever_they_go() {
        let data = by_position();
        let (mut images, mut labels) = ([0.0f32; 4], [0; 8]);
        data.draw(&[2, 0], 1, 0, &mut images, &mut labels).unwrap();
        assert_eq!((images, labels), ([4.0, 5.0, 0.0, 1.0], [8, 9, 10, 11, 0, 1, 2, 3]));
        let part = data.held(&[1, 2]).unwrap();
        assert_eq!((part.len(), part.labels_of(&[0, 1])), (2, (4..12).collect()));
        // A shuffle: sample 0 comes into the slot of sample 1, which leaves, and sample 2 behind the others.
        let mut part = part;
        let mut message = [0; 16];
        data.pack(&[0, 2], &mut message).unwrap();
        part.unpack(&message, super::super::Coming { whole: &data, samples: &[0, 2], slots: &[0, 2] });
        assert_eq!((part.len(), part.labels()), (3, &[0, 1, 2, 3, 8, 9, 10, 11, 8, 9, 10, 11][..]));
        part.draw(&[0, 2], 1, 0, &mut images, &mut labels).unwrap();
        assert_eq!((images, labels), ([0.0, 1.0, 4.0, 5.0], [0, 1, 2, 3, 8, 9, 10, 11]));
        assert_eq!(data.in_memory(1 << 20).unwrap().labels(), (0..12).collect::<Vec<u32>>());
    }

    #[test]
    fn samples_without_labels_have_none() {
        let data = Dataset::labelled("n", (Shape::flat(1), 3), vec![7.0, 8.0, 9.0], 0, (None, Vec::new())).unwrap();
        let mut images = [0.0f32; 2];
        data.draw(&[2, 1], 1, 0, &mut images, &mut []).unwrap();
        assert_eq!((images, data.labels_of(&[1])), ([9.0, 8.0], Vec::new()));
        assert_eq!((data.subset(&[0, 2]).len(), data.labels_each()), (2, 0));
    }

    #[test]
    fn other_counts_and_other_labels_than_a_model_takes_are_refused() {
        let label = SampleTensor::labels(Shape::new(&[(Dimension::Position, 2)]));
        let refused = |labels| Dataset::labelled("p", (Shape::flat(1), 2), vec![0.0; 2], 5, (Some(label), labels));
        assert!(refused(vec![0; 3]).unwrap_err().to_string().contains("are not 2 for each of 2 samples"));
        assert!(refused(vec![0, 1, 2, 5]).unwrap_err().to_string().contains("of sample 1 must be below 5"));
        let model = lockstep_readers::load_model("mlp").unwrap();
        let shape = model.input();
        let images = vec![0.0; shape.elements() as usize];
        let data = Dataset::labelled("p", (shape, 1), images, 2, (Some(label), vec![0, 1])).unwrap();
        let message = data.check_fits(&model).unwrap_err().to_string();
        assert!(message.contains("labels: u32 of position 2") && message.contains("needs one u32"), "{message}");
    }
}
