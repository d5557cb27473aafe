//! Checks the fields of Caffe's data layers: what their source and their transformation may state.

use lockstep_topology::InputError;

use super::super::text::{Field, Message};
use super::COMMON;

/// The type of a field's value.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Size,
    Number,
    Choice,
    Word(&'static [&'static str]),
}

/// The messages of data layers, and the fields of each (`caffe.proto`). Fields that choose neither the shape nor the
/// number of samples belong to the data, which are given apart from the net.
const MESSAGES: &[(&str, &[(&str, Kind)])] = &[
    (
        "transform_param",
        &[
            ("scale", Kind::Number),
            ("mirror", Kind::Choice),
            ("crop_size", Kind::Size),
            ("mean_file", Kind::Text),
            ("mean_value", Kind::Number),
            ("force_color", Kind::Choice),
            ("force_gray", Kind::Choice),
        ],
    ),
    (
        "data_param",
        &[
            ("source", Kind::Text),
            ("batch_size", Kind::Size),
            ("rand_skip", Kind::Size),
            ("backend", Kind::Word(&["LEVELDB", "LMDB", "0", "1"])),
            ("scale", Kind::Number),
            ("mean_file", Kind::Text),
            ("crop_size", Kind::Size),
            ("mirror", Kind::Choice),
            ("force_encoded_color", Kind::Choice),
            ("prefetch", Kind::Size),
        ],
    ),
    (
        "image_data_param",
        &[
            ("source", Kind::Text),
            ("batch_size", Kind::Size),
            ("rand_skip", Kind::Size),
            ("shuffle", Kind::Choice),
            ("new_height", Kind::Size),
            ("new_width", Kind::Size),
            ("is_color", Kind::Choice),
            ("scale", Kind::Number),
            ("mean_file", Kind::Text),
            ("crop_size", Kind::Size),
            ("mirror", Kind::Choice),
            ("root_folder", Kind::Text),
        ],
    ),
    (
        "memory_data_param",
        &[("batch_size", Kind::Size), ("channels", Kind::Size), ("height", Kind::Size), ("width", Kind::Size)],
    ),
];

/// Refuses fields of a data layer that are unknown, given twice, or of another type.
pub(in super::super) fn check(layer: &Message<'_>) -> Result<(), InputError> {
    let messages: Vec<&'static str> = MESSAGES.iter().map(|(name, _)| *name).collect();
    layer.allow(&[COMMON, &messages])?;
    for (name, fields) in MESSAGES {
        let of = layer.message(name)?;
        let names: Vec<&'static str> = fields.iter().map(|(name, _)| *name).collect();
        of.allow(&[&names])?;
        for field in of.fields() {
            let kind = fields.iter().find(|(name, _)| *name == field.name).map(|(_, kind)| *kind);
            kind.map_or(Ok(()), |kind| check_value(field, kind))?;
        }
    }
    Ok(())
}

fn check_value(field: &Field<'_>, kind: Kind) -> Result<(), InputError> {
    match kind {
        Kind::Text => field.text().map(drop),
        Kind::Size => field.size().map(drop),
        Kind::Number => field.number().map(drop),
        Kind::Choice => field.boolean().map(drop),
        Kind::Word(all) if field.word().is_ok_and(|word| all.contains(&word)) => Ok(()),
        Kind::Word(all) => Err(field.error(format!("must be one of {}", all[..2].join(" and ")))),
    }
}
