//! How long a program takes on a cluster.
