//! Tests of reading experiments and expanding them.
