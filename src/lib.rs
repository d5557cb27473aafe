//! lockstep: predict and execute distributed training from one program.
