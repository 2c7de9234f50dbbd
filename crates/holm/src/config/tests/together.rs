//! Settings of which each is right alone, and bounds of what the kernel can do.

use super::*;
use std::os::unix::ffi::OsStringExt as _;

#[test]
fn limits_that_nothing_could_work_with_are_refused() {
    for (key, least, most) in [
        ("node.processes_max", 0, 4_194_304),
        ("node.pids_max", 4, 4_194_304),
        ("node.terminals_max", 1, 1_048_576),
        ("node.open_files_max", 16, 1 << 42),
        ("node.drive_mb", 0, 16_777_215),
        ("builder.disk_mb", 1, 16_777_215),
        ("builder.memory_mb", 16, u64::from(u32::MAX)),
    ] {
        let line = |count: u64| format!("{key} = {count}");
        for right in [least, most] {
            load_text(&line(right)).unwrap_or_else(|error| panic!("{error}"));
        }
        if least > 0 {
            refused(&line(least - 1), &["holm.toml:1", key, &format!("at least {least}")]);
        }
        refused(&line(most + 1), &["holm.toml:1", key]);
    }
}

#[test]
fn limits_that_do_not_fit_together_are_refused() {
    for section in ["server", "models"] {
        for key in ["bodies_bytes_max", "bodies_workspace_bytes_max"] {
            refused(
                &format!("[{section}]\n{key} = 999\nbody_bytes_max = 1000"),
                &[
                    &format!("holm.toml:2: `{section}.{key}` must be at least"),
                    &format!("`{section}.body_bytes_max` is set in"),
                ],
            );
        }
    }
    refused(
        "[gateway]\nrequests_workspace_max = 4000",
        &["`gateway.requests_public_max` must be below", "holm.toml:2"],
    );
    assert!(load_text("[gateway]\nrequests_workspace_max = 2\nrequests_public_max = 1").is_ok());
}

/// The one that is named may be the one that has its default.
#[test]
fn settings_that_go_together_name_the_place_of_the_other() {
    for (text, key) in [
        ("[jobs]\nheartbeat = \"1h\"", "jobs.lease"),
        ("[jobs]\nbackoff_first = \"30d\"", "jobs.backoff_max"),
        ("[jobs]\nopen_max = 1", "jobs.open_public_max"),
        ("[server]\ntls_key = \"key.pem\"", "server.tls_certificate"),
        ("[server]\ntls_certificate = \"crt.pem\"", "server.tls_key"),
        ("[auth]\noidc_client_id = \"c\"", "auth.oidc_issuer"),
    ] {
        refused(text, &[&format!("`{key}`"), "is set in", "holm.toml:2"]);
    }
}

#[test]
fn a_number_of_more_than_64_bits_names_its_key() {
    for number in ["9223372036854775808", "99999999999999999999999", "-9223372036854775809"] {
        refused(
            &format!("[server]\n\nthreads = {number}"),
            &["holm.toml:3: `server.threads`", "larger than any setting"],
        );
    }
    refused("[placement]\nregions = [99999999999999999999]", &["holm.toml:2: `placement.regions`"]);
}

#[test]
fn a_variable_that_is_no_text_is_not_passed_over() {
    let bytes = || std::ffi::OsString::from_vec(vec![b'/', 0xff]);
    let load_variable =
        |name: &str| load(None, std::iter::once((name.to_owned(), bytes())), &[]).map(drop);
    let said = load_variable("HOLM_DATA__FOLDER").unwrap_err().to_string();
    assert!(said.contains("HOLM_DATA__FOLDER: `data.folder`") && said.contains("UTF-8"), "{said}");
    load_variable("HOLM_DATA_HOME").unwrap();
    load_variable("PATH").unwrap();
}
