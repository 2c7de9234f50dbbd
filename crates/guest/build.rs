//! Links one function more than the code names. The standard library starts processes without
//! copying this one only if the C library can set their directory; in a static program that
//! function is there only if somebody asks for it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,--undefined=posix_spawn_file_actions_addchdir_np");
    }
}
