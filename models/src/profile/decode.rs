//! `DecodeEntry`: how long threads take to make a sample of a set, by form and augmentation.

use serde::{Deserialize, Serialize};

use super::{Interval, Profile};
use crate::{Augmentation, SampleForm, StoredSamples};

/// Decoding, cropping and normalising a sample of a set; or converting, copying and augmenting it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodeEntry {
    /// Its form.
    #[serde(default, skip_serializing_if = "is_jpeg")]
    pub form: SampleForm,
    /// How arrays and values are augmented meanwhile, as in settings; empty for files of pictures, whose decoding takes most
    /// of the time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub augment: String,
    /// Bytes of a sample as it is stored, on average over the set.
    pub bytes: u64,
    /// Pixels of the picture, on average.
    pub pixels: u64,
    /// fp32 elements that are made of it.
    pub elements: u64,
    /// Seconds on one core, alone.
    pub seconds: Interval,
    /// The seconds of these in which it is cropped, flipped and normalised; `None` in profiles of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Interval>,
    /// How many times longer it takes when every core decodes.
    pub slowdown: f64,
}

/// Whether a profile does not name the form, as profiles of earlier builds do not.
fn is_jpeg(form: &SampleForm) -> bool {
    *form == SampleForm::Jpeg
}

impl DecodeEntry {
    /// The augmentation that an entry of samples of `form` names.
    pub fn augment(form: SampleForm, augmentation: Augmentation) -> String {
        if form.is_picture() { String::new() } else { augmentation.to_string() }
    }
}

impl Profile {
    /// The time of decoding a sample of a set: as measured for such samples, or for others in proportion to their
    /// pixels; `None` where none of its form, and other than of pictures with its augmentation, were measured.
    pub fn decode_of(&self, sample: StoredSamples, elements: u64, augmentation: Augmentation) -> Option<DecodeEntry> {
        let augment = DecodeEntry::augment(sample.form, augmentation);
        let is_such = |entry: &&DecodeEntry| entry.form == sample.form && entry.augment == augment;
        let distance = |entry: &&DecodeEntry| {
            let apart = entry.pixels.abs_diff(sample.pixels) + entry.bytes.abs_diff(sample.bytes);
            (entry.elements != elements, apart)
        };
        let nearest = self.decode.iter().filter(is_such).min_by_key(distance)?;
        let factor = sample.pixels.max(1) as f64 / nearest.pixels.max(1) as f64;
        let Interval { value, low, high } = nearest.seconds;
        let seconds = Interval { value: value * factor, low: low * factor, high: high * factor };
        // It makes the same elements of any picture.
        Some(DecodeEntry { seconds, ..nearest.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: a JPEG file of 2 pixels takes 3 s, so one of 4 takes 6 s with any augmentation. Arrays were measured with
    /// flips alone, and values not at all.
    #[test]
    fn times_are_those_of_the_form_and_of_the_augmentation() {
        let mut profile = Profile::parse("p", include_str!("../../../tests/goldens/profile.json")).expect("a profile");
        let entry = |form, augment: &str, pixels, seconds| DecodeEntry {
            form,
            augment: augment.to_owned(),
            bytes: 9,
            pixels,
            elements: 5,
            seconds: Interval { value: seconds, low: seconds, high: seconds },
            transform: None,
            slowdown: 1.0,
        };
        profile.decode = vec![entry(SampleForm::Jpeg, "", 2, 3.0), entry(SampleForm::Bytes, "flip", 4, 0.5)];
        let seconds = |form, augment: &str| {
            let sample = StoredSamples { form, bytes: 9, pixels: 4 };
            let found = profile.decode_of(sample, 5, augment.parse().expect("an augmentation"));
            found.map(|entry| entry.seconds.value)
        };
        assert_eq!([seconds(SampleForm::Jpeg, "none"), seconds(SampleForm::Jpeg, "flip")], [Some(6.0); 2]);
        assert_eq!([seconds(SampleForm::Bytes, "none"), seconds(SampleForm::Bytes, "flip")], [None, Some(0.5)]);
        // PNG files are not priced as JPEG files.
        assert_eq!([seconds(SampleForm::Values, "none"), seconds(SampleForm::Png, "none")], [None; 2]);
    }

    /// Entries of JPEG files are as earlier builds wrote them.
    #[test]
    fn entries_of_pictures_name_no_form() {
        let text = r#"{"bytes":9,"pixels":2,"elements":5,"seconds":{"value":1.0,"low":1.0,"high":1.0},"slowdown":1.0}"#;
        let entry: DecodeEntry = serde_json::from_str(text).expect("an entry");
        assert_eq!(entry.form, SampleForm::Jpeg);
        assert_eq!(serde_json::to_string(&entry).expect("text"), text);
    }
}
