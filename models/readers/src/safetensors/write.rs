//! Writes the parameters of a model to a safetensors file, a tensor at a time.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::layout::{Tensor, WeightLayout};

/// Bytes of a number.
const F32: u64 = 4;

impl WeightLayout {
    /// Writes `parameters`, those of the model whose layout this is, in fp32. Tied scores have no tensor, as in transformers.
    ///
    /// # Errors
    /// Those of `out`.
    ///
    /// # Panics
    /// Parameters of another model.
    pub fn write(&self, parameters: &[f32], out: &mut dyn Write) -> io::Result<()> {
        assert_eq!(parameters.len() as u64, self.elements, "the parameters of the model");
        let mut header = self.header();
        // Tensors begin at a multiple of eight bytes.
        header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        let mut numbers: Vec<[u8; F32 as usize]> = Vec::new();
        for tensor in &self.tensors {
            numbers.resize(tensor.elements() as usize, [0; F32 as usize]);
            for (range, first, step) in tensor.parts.iter().flat_map(|part| part.rows()) {
                for (value, number) in parameters[range].iter().zip(numbers[first..].iter_mut().step_by(step)) {
                    *number = value.to_le_bytes();
                }
            }
            out.write_all(numbers.as_flattened())?;
        }
        Ok(())
    }

    /// The header; transformers asks for the framework that wrote it.
    fn header(&self) -> String {
        let mut map = Map::new();
        map.insert("__metadata__".to_owned(), json!({"format": "pt"}));
        let mut end = 0;
        for Tensor { name, shape, .. } in &self.tensors {
            let start = end;
            end += shape.iter().product::<u64>() * F32;
            map.insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]}));
        }
        Value::Object(map).to_string()
    }
}
