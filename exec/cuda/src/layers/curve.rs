//! Lowers elementwise functions whose derivative is computed from the input or from the output.

/// Defines such a layer: its variant, its kernel file, a struct for each of its two kernels, and the tensor that the
/// derivative is computed from, by the kernel's name for it.
macro_rules! curve {
    ($layer:ident, $file:literal: $forward:ident = $value:ident, $backward:ident = $gradient:ident, $at:ident = $tensor:expr) => {
        use $crate::kernel::{KernelSource, kernels, source};
        use $crate::layers::head::{Head, Wanted};
        use $crate::layers::pass::{ForwardPass, PassGradients};
        use $crate::layers::script::{Script, count};
        use $crate::{Activation, Geometry, View, ViewMut};

        const SOURCE: KernelSource = source!($file);

        kernels! {
            #[doc = concat!("Output of the layer `", stringify!($layer), "` from its input.")]
            $forward<A> = SOURCE::$value on Geometry::groups(all), all = u64::from(elements); {
                x: View<A>[all],
                y: ViewMut<A>[all],
                elements: u32,
            }

            #[doc = concat!("The gradient before the layer `", stringify!($layer), "` from its input or its output.")]
            $backward<A> = SOURCE::$gradient on Geometry::groups(all), all = u64::from(elements); {
                d_y: View<A>[all],
                $at: View<A>[all],
                d_x: ViewMut<A>[all],
                elements: u32,
                accumulate: bool,
            }
        }

        /// Makes the head of such a layer.
        pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
            matches!(of.layer, lockstep_models::Layer::$layer).then(|| Box::new($layer) as Box<dyn Head<A>>)
        }

        /// The layer.
        struct $layer;

        impl<A: Activation> Head<A> for $layer {
            fn forward(&self, of: &ForwardPass<'_, A>, _: u32, script: &mut Script<'_>) {
                let (x, y, elements) = (of.inputs[0], of.output, count(of.output.elements()));
                script.launch(&$forward { x, y, elements });
            }

            fn backward(&self, of: &PassGradients<'_, A>, _: u32, script: &mut Script<'_>) {
                let Some((d_x, accumulate)) = of.d_input() else { return };
                let at: fn(&PassGradients<'_, A>) -> View<A> = $tensor;
                let (d_y, $at, elements) = (of.d_output, at(of), count(d_x.elements()));
                script.launch(&$backward { d_y, $at, d_x, elements, accumulate });
            }
        }
    };
}
pub(super) use curve;
