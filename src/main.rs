//! The command line of Outbill.

fn main() {}
