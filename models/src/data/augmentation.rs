//! `Augmentation`: parses the random augmentations of training samples from settings.

use std::fmt;
use std::str::FromStr;

/// The random augmentations of a training sample: `none`, or some of `patch`, `scale`, `crop=PIXELS` and `flip`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Augmentation {
    /// A patch of the model's input size out of a larger image; evaluation takes the central one (Krizhevsky 2014, §5,
    /// and Iandola et al. 2016, §7.1: 224 of 256 pixels).
    pub patch: bool,
    /// A crop of random area and aspect ratio, resized to the image's size (Goyal et al. 2017, §5.1).
    pub scale: bool,
    /// A crop of the image's size out of the image padded by this number of pixels (He et al. 2016, §4.2).
    pub crop: u32,
    /// Mirrored left to right, every other time.
    pub flip: bool,
}

impl FromStr for Augmentation {
    type Err = String;

    fn from_str(text: &str) -> Result<Augmentation, String> {
        let mut found = Augmentation::default();
        for part in text.split(',').map(str::trim).filter(|part| *part != "none") {
            match part.split_once('=') {
                None if part == "patch" => found.patch = true,
                None if part == "scale" => found.scale = true,
                None if part == "flip" => found.flip = true,
                Some(("crop", pixels)) => match pixels.parse() {
                    Ok(pixels @ 1..=1024) => found.crop = pixels,
                    _ => return Err(format!("crop={pixels}: must be 1 to 1024 pixels")),
                },
                _ => {
                    return Err(format!(
                        "{part:?} is not an augmentation: write none, or some of patch,scale,crop=4,flip"
                    ));
                }
            }
        }
        Ok(found)
    }
}

impl fmt::Display for Augmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let crop = (self.crop > 0).then(|| format!("crop={}", self.crop));
        let named = |on: bool, name: &str| on.then(|| name.to_owned());
        let parts = [named(self.patch, "patch"), named(self.scale, "scale"), crop, named(self.flip, "flip")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "none" } else { "" })?;
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for text in ["none", "flip", "crop=4,flip", "scale,flip", "scale,crop=1,flip", "patch,flip"] {
            assert_eq!(text.parse::<Augmentation>().map(|found| found.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "crop", "crop=0", "crop=x", "mirror"] {
            assert!(text.parse::<Augmentation>().is_err(), "{text}");
        }
    }
}
