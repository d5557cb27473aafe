//! Takes neighbouring channels of its input, in order or shuffled between groups.

use super::*;

/// Some neighbouring channels of the input. With g groups output i is channel `first + (i mod g) · (n/g) + i div g` of n: the
/// channel shuffle of ShuffleNet (Zhang et al. 2018, §3.1), whose groups become interleaved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Select {
    /// The first channel that is taken.
    pub first: u32,
    /// How many channels are taken.
    pub channels: u32,
    /// Groups that are interleaved; 1 keeps the order.
    pub groups: u32,
}

pub(super) const KIND: LayerKind = LayerKind {
    keys: &["first", "channels", "groups"],
    family: "concat",
    ..LayerKind::new("select", |of| {
        let channels = of.size("channels")?;
        let channels = channels.ok_or_else(|| of.missing("channels", "how many are taken, e.g. channels = 58"))?;
        let (first, groups) = (of.size("first")?.unwrap_or(0), of.size("groups")?.unwrap_or(1));
        Ok(Layer::Select(Select { first, channels, groups }))
    })
};

impl Select {
    /// The input's channel that is output `channel`.
    pub fn source(&self, channel: u32) -> u32 {
        self.first + channel % self.groups * (self.channels / self.groups) + channel / self.groups
    }
}

impl LayerRule for Select {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let end = u64::from(self.first) + u64::from(self.channels);
        if self.channels == 0 || end > u64::from(inputs[0].features()) {
            return Err(format!(
                "takes {} channels from {} of an input of {}: they must lie in it",
                self.channels, self.first, inputs[0]
            ));
        }
        if self.groups == 0 || !self.channels.is_multiple_of(self.groups) {
            return Err(format!("groups is {}: it must divide the {} channels", self.groups, self.channels));
        }
        Ok(Signature::elementwise(inputs, inputs[0].with_features(self.channels)).with_whole(&[Dimension::Feature]))
    }

    fn settings(&self) -> String {
        format!(", first = {}, channels = {}, groups = {}", self.first, self.channels, self.groups)
    }

    fn cost_settings(&self) -> String {
        format!(" {}+{}/{}", self.first, self.channels, self.groups)
    }

    fn flops(&self, _: &Node) -> [f64; 3] {
        [0.0; 3]
    }

    /// Forward it reads the channels that it selects.
    fn adjusted_work(&self, of: &Node, pass: Pass, samples: f64, work: Work) -> Work {
        let read = if pass == Pass::Forward { samples * of.output_elements() } else { work.elements_read };
        Work { elements_read: read, ..work }
    }
}
