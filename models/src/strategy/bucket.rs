//! `Bucket`: chooses how gradients are cut into exchanges.

use std::fmt;
use std::str::FromStr;

use lockstep_topology::Bytes;

/// How gradients are cut into exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucket {
    /// One exchange per layer with parameters (Goyal et al. 2017 §4).
    Layer,
    /// One exchange of everything after the backward pass (Iandola et al. 2016 §6).
    Whole,
    /// Neighbouring layers until this size is reached.
    Size(Bytes),
    /// One exchange per tensor of parameters, none of which begins before the whole backward pass has ended: as in
    /// solvers that call a reduction for each of their tensors.
    Tensor,
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bucket::Layer => f.write_str("layer"),
            Bucket::Whole => f.write_str("whole"),
            Bucket::Size(bytes) => write!(f, "{bytes}"),
            Bucket::Tensor => f.write_str("tensor"),
        }
    }
}

impl FromStr for Bucket {
    type Err = String;

    fn from_str(text: &str) -> Result<Bucket, String> {
        match text {
            "layer" => Ok(Bucket::Layer),
            "whole" => Ok(Bucket::Whole),
            "tensor" => Ok(Bucket::Tensor),
            size => match size.parse::<Bytes>() {
                Ok(Bytes(0)) | Err(_) => {
                    Err(format!("{text:?} is not a bucket: write layer, whole, tensor or a size like 25MiB"))
                }
                Ok(bytes) => Ok(Bucket::Size(bytes)),
            },
        }
    }
}
