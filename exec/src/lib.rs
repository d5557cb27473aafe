//! Runs a program for real.
