//! Finds the fields of a layer that Caffe knows and ignores: settings of layers of another type, and of fillers of
//! another type, as published networks have them.

use lockstep_topology::InputError;

use super::super::text::{Field, Message};
use super::fields::{FORKS, OTHERS};
use super::{data, is_data, read_by};
use lockstep_models::layer::KINDS;

/// The fields of a layer of that type that Caffe ignores.
///
/// # Errors
/// Fields of settings for another type that no layer has.
pub(in super::super) fn ignored<'m, 'a>(kind: &str, layer: &'m Message<'a>) -> Result<Vec<&'m Field<'a>>, InputError> {
    let kinds = || KINDS.iter().filter_map(|kind| kind.caffe.as_ref());
    let own = kinds().find(|known| known.types.contains(&kind)).map_or(&[][..], |known| known.own);
    let by_data = |name: &str| is_data(kind) && data::reads(name);
    let by_type = [
        ("Input", "input_param"),
        ("DummyData", "dummy_data_param"),
        ("DUMMY_DATA", "dummy_data_param"),
        ("Reshape", "reshape_param"),
        ("RESHAPE", "reshape_param"),
        ("Slice", "slice_param"),
        ("SLICE", "slice_param"),
    ];
    let read = |name: &str| own.contains(&name) || by_data(name) || by_type.contains(&(kind, name));
    let others = layer.fields().iter().filter(|field| OTHERS.contains(&field.name) && !read(field.name));
    let mut found: Vec<&Field<'a>> = others.collect();
    for field in &found {
        let known = kinds().find(|known| known.own.contains(&field.name) && !known.fields.is_empty());
        known.map_or(Ok(()), |known| field.message()?.allow(&[&known.fields.split(' ').collect::<Vec<_>>()]))?;
    }
    found.extend(layer.fields().iter().filter(|field| FORKS.contains(&field.name)));
    for name in own.iter().filter(|name| name.ends_with("_param")) {
        let Some(of) = layer.get(name) else { continue };
        for filler in of.message()?.fields().iter().filter(|field| field.name.ends_with("_filler")) {
            let filler = filler.message()?;
            let Some(read) = read_by(filler.text("type")?) else { continue };
            let read = |field: &Field<'a>| field.name == "type" || read.iter().any(|(name, _)| *name == field.name);
            found.extend(filler.fields().iter().filter(|field| !read(field)));
        }
    }
    Ok(found)
}
