//! Checks the fields of Caffe's data layers: what their source and their transformation may state.

use lockstep_topology::InputError;

use super::super::text::{Field, Message};
use super::COMMON;
use super::fields::OTHERS;

/// The type of a field's value.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Size,
    Number,
    Choice,
    /// A number, text or message of a fork that the shape and number of samples do not depend on.
    Any,
    Word(&'static [&'static str]),
}

/// Fields with their types.
type Fields = &'static [(&'static str, Kind)];

/// What data layers that name their source have in common.
const SOURCE: Fields = &[("source", Kind::Text), ("batch_size", Kind::Size), ("rand_skip", Kind::Size)];

/// How samples are transformed: of `transform_param`, and in the original form of the file among those of the source.
const TRANSFORM: Fields =
    &[("scale", Kind::Number), ("mirror", Kind::Choice), ("crop_size", Kind::Size), ("mean_file", Kind::Text)];

/// The messages of data layers, and the fields of each (`caffe.proto`). Fields that choose neither the shape nor the
/// number of samples belong to the data, which are given apart from the net.
const MESSAGES: &[(&str, &[Fields])] = &[
    (
        "transform_param",
        &[
            TRANSFORM,
            &[("mean_value", Kind::Number), ("force_color", Kind::Choice), ("force_gray", Kind::Choice)],
            &[
                ("allow_upscale", Kind::Any),
                ("forward_packing", Kind::Any),
                ("horizontal_stretch_lower", Kind::Any),
                ("horizontal_stretch_upper", Kind::Any),
                ("img_rand_resize_lower", Kind::Any),
                ("img_rand_resize_upper", Kind::Any),
                ("interpolation_algo_down", Kind::Any),
                ("interpolation_algo_up", Kind::Any),
                ("rand_resize_ratio_lower", Kind::Any),
                ("rand_resize_ratio_upper", Kind::Any),
                ("random_aspect_ratio_param", Kind::Any),
                ("random_resize_param", Kind::Any),
                ("random_seed", Kind::Any),
                ("use_gpu_transform", Kind::Any),
                ("vertical_stretch_lower", Kind::Any),
                ("vertical_stretch_upper", Kind::Any),
            ],
        ],
    ),
    (
        "data_param",
        &[
            SOURCE,
            TRANSFORM,
            &[
                ("backend", Kind::Word(&["LEVELDB", "LMDB", "0", "1"])),
                ("force_encoded_color", Kind::Choice),
                ("prefetch", Kind::Size),
                ("cache", Kind::Any),
                ("parser_threads", Kind::Any),
                ("precache", Kind::Any),
                ("shuffle", Kind::Any),
                ("threads", Kind::Any),
            ],
        ],
    ),
    (
        "image_data_param",
        &[
            SOURCE,
            TRANSFORM,
            &[
                ("shuffle", Kind::Choice),
                ("new_height", Kind::Size),
                ("new_width", Kind::Size),
                ("is_color", Kind::Choice),
                ("root_folder", Kind::Text),
                ("cache", Kind::Any),
                ("precache", Kind::Any),
                ("threads", Kind::Any),
            ],
        ],
    ),
    ("hdf5_data_param", &[&[("source", Kind::Text), ("batch_size", Kind::Size), ("shuffle", Kind::Choice)]]),
    (
        "memory_data_param",
        &[&[("batch_size", Kind::Size), ("channels", Kind::Size), ("height", Kind::Size), ("width", Kind::Size)]],
    ),
];

/// Whether data layers read the message `name`.
pub(super) fn reads(name: &str) -> bool {
    MESSAGES.iter().any(|(message, _)| *message == name)
}

/// Refuses fields of a data layer that are unknown, given twice, or of another type.
pub(in super::super) fn check(layer: &Message<'_>) -> Result<(), InputError> {
    let messages: Vec<&'static str> = MESSAGES.iter().map(|(name, _)| *name).collect();
    layer.allow(&[COMMON, &messages, OTHERS])?;
    for (name, fields) in MESSAGES {
        let of = layer.message(name)?;
        let fields = || fields.iter().copied().flatten();
        let names: Vec<&'static str> = fields().map(|(name, _)| *name).collect();
        of.allow(&[&names])?;
        for field in of.fields() {
            let kind = fields().find(|(name, _)| *name == field.name).map(|(_, kind)| *kind);
            kind.map_or(Ok(()), |kind| check_value(field, kind))?;
        }
    }
    Ok(())
}

fn check_value(field: &Field<'_>, kind: Kind) -> Result<(), InputError> {
    match kind {
        Kind::Any => Ok(()),
        Kind::Text => field.text().map(drop),
        Kind::Size => field.size().map(drop),
        Kind::Number => field.number().map(drop),
        Kind::Choice => field.boolean().map(drop),
        Kind::Word(all) if field.word().is_ok_and(|word| all.contains(&word)) => Ok(()),
        Kind::Word(all) => Err(field.error(format!("must be one of {}", all[..2].join(" and ")))),
    }
}
