"""Written by `cargo run -p xtask -- codegen`; nothing here is public."""
