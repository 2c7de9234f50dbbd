mod addresses;
mod node;
mod numbers;
mod together;
mod usual;

use super::*;

fn load_text(text: &str) -> Result<Config, Error> {
    load_with(text, &[])
}

fn load_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, Error> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("holm.toml");
    std::fs::write(&file, text).unwrap();
    load(
        Some(&file),
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())),
        &[],
    )
}

#[track_caller]
fn refused(text: &str, expect: &[&str]) {
    let message = load_text(text).unwrap_err().to_string();
    for part in expect {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn the_defaults_are_usable() {
    let config = load_text("").unwrap();
    assert_eq!(config.server.roles, [Role::Api, Role::Gateway, Role::Node]);
    assert_eq!(config.placement.regions[0].name, "local");
    assert!(config.store.url.is_none());
}

#[test]
fn the_example_file_is_the_defaults() {
    assert_eq!(
        format!("{:?}", load_text(EXAMPLE).unwrap()),
        format!("{:?}", load_text("").unwrap())
    );
}

#[test]
fn every_unknown_key_names_itself_its_line_and_the_nearest() {
    refused("[server]\n\nlisten_on = 1", &["holm.toml:3", "`server.listen_on`", "`server.listen`"]);
    refused(
        "[sever]\nlisten = \"127.0.0.1:1\"",
        &["holm.toml:2", "`sever.listen`", "`server.listen`"],
    );
    refused("listen = \"127.0.0.1:1\"", &["holm.toml:1", "`server.listen`"]);
    refused("server = 1", &["`[server]`"]);
    refused("[limits.quotas]\nunicorns = 1", &["`limits.quotas.unicorns`"]);
}

/// Uses the list of known keys, so that a new one cannot be forgotten.
#[test]
fn every_key_refuses_a_value_of_another_type_by_name() {
    for key in known_keys() {
        let message = load_text(&format!("{key} = 1979-05-27T07:32:00Z")).unwrap_err().to_string();
        assert!(
            message.contains(&format!("`{key}` must be")) && message.contains(":1"),
            "{message}"
        );
    }
}

#[test]
fn every_key_can_come_from_the_environment() {
    for key in known_keys() {
        let name = format!("HOLM_{}", key.to_uppercase().replace('.', "__"));
        let error = load_with("", &[(&name, "\u{1}")]);
        // Free text accepts anything; every other key names the variable in its error.
        if let Err(error) = error {
            assert!(
                error.to_string().contains(&name) || error.to_string().contains("go together"),
                "{error}"
            );
        }
    }
    let config =
        load_with("[server]\nlisten = \"127.0.0.1:1\"", &[("HOLM_SERVER__LISTEN", "127.0.0.1:2")])
            .unwrap();
    assert_eq!(config.server.listen.port(), 2);
    assert!(load_with("", &[("HOLM_SERVER__LISTEM", "x")]).is_err());
    assert!(load_with("", &[("HOLM_URL", "http://elsewhere")]).is_ok());
}

#[test]
fn turns_of_heavy_work_are_as_the_settings_say() {
    let text = "[logs]\nsearches_max = 7\nsearches_workspace_max = 3\n\
                [s3]\nheavy_max = 9\nheavy_workspace_max = 5";
    let config = load_text(text).unwrap();
    let searches = config.logs.searches();
    assert_eq!((searches.total, searches.workspace), (7, 3));
    let s3 = config.s3.settings();
    assert_eq!((s3.heavy_max, s3.heavy_workspace_max), (9, 5));
}

#[test]
fn a_wrong_value_says_what_is_right() {
    refused("[server]\nlisten = \"here\"", &["holm.toml:2", "`server.listen`", "no IP address"]);
    refused("[server]\nroles = [\"cook\"]", &["`server.roles`", "gateway"]);
    refused("[server]\ndrain_timeout = \"soon\"", &["`server.drain_timeout`", "`30s`"]);
    refused("[server]\ntls_key = \"key.pem\"", &["`server.tls_certificate`"]);
    refused("[server]\npublic_url = \"holm.example.org\"", &["`server.public_url`", "https://"]);
    refused("[server]\ncontent_listen = \"8701\"", &["`server.content_listen`", "address"]);
    refused("[server]\ncontent_url = \"https://x.org/c\"", &["`server.content_url`", "no path"]);
    for own in ["http://10.0.0.7:8700", "http://localhost:80"] {
        let text = format!("[server]\npublic_url = \"{own}\"\ncontent_url = \"{own}/\"");
        refused(&text, &["`server.content_url`", "another port"]);
    }
    refused("[domains]\nnameservers = [\"here\"]", &["`domains.nameservers`", "192.0.2.53"]);
    refused(
        "[domains]\ncertificates = \"x\"",
        &["`domains.certificates`", "server.tls_certificate"],
    );
    refused(
        "[domains.acme]\ndirectory = \"https://x.org/d\"",
        &["`domains.acme.directory`", "server.tls_certificate"],
    );
    refused("[store]\nurl = \"mysql://x\"", &["`store.url`", "postgres://"]);
    refused("[store]\nconnections = 0", &["`store.connections`", "at least 1"]);
    refused("[store]\nconnections = -1", &["`store.connections`"]);
    refused("[auth]\noidc_issuer = \"https://x.example\"", &["`auth.oidc_client_id`"]);
    refused("[placement]\nregions = []", &["`placement.regions`"]);
    refused("[placement]\nregions = [{ name = \"Here\" }]", &["`placement.regions`", "lower-case"]);
    refused("[placement]\nregions = [{ nam = \"x\" }]", &["`placement.regions`", "name"]);
    refused("[telemetry]\nsample_ratio = 2.0", &["`telemetry.sample_ratio`"]);
    refused("[log]\nlevel = \"loud\"", &["`log.level`"]);
    refused("[server\n", &["holm.toml:1", "not TOML"]);
}

#[test]
fn a_log_level_silences_nothing_by_a_slip() {
    use tracing::Level;
    let enabled = |level: &str, part: &str| {
        let config = load_text(&format!("[log]\nlevel = \"{level}\"")).unwrap();
        config.log.targets().unwrap().would_enable(part, &Level::INFO)
    };
    for level in ["info", " info", "info ", "info , refusals=off", "refusals=off", "store=debug"] {
        assert!(enabled(level, "holm"), "{level}");
    }
    assert!(!enabled("info , refusals=off", "refusals") && !enabled("off", "holm"));
    for level in ["", " ", "info,,warn", "info,", "=info", "store=", "in fo", "store = debug"] {
        refused(&format!("[log]\nlevel = \"{level}\""), &["`log.level`", "store=debug"]);
    }
}

#[test]
fn what_the_first_start_makes_can_be_used() {
    let long = "a".repeat(300);
    for name in ["nonsense value !!", "", "Team", &long, "-a", "v0", "oauth"] {
        let text = format!("[first_start]\nworkspace = \"{name}\"");
        refused(&text, &["`first_start.workspace`", &format!("is `{name}`")]);
    }
    for account in ["", " ", "A\\nB", &long] {
        let text = format!("[first_start]\naccount = \"{account}\"");
        refused(&text, &["holm.toml:2: `first_start.account`", "1 to 63 characters"]);
    }
    for email in ["x", "", "x@", "a b@example.org"] {
        let text = format!("[first_start]\nadmin_email = \"{email}\"");
        refused(&text, &["`first_start.admin_email`", "admin@example.org"]);
    }
}

#[test]
fn an_address_that_others_begin_with_is_an_origin() {
    for key in ["public_url", "content_url"] {
        for url in ["https://x.org/base", "https://u:p@x.org", "https://u@x.org/"] {
            let text = format!("[server]\n{key} = \"{url}\"");
            refused(&text, &[&format!("`server.{key}`"), "no path, user or password"]);
        }
        assert!(load_text(&format!("[server]\n{key} = \"https://x.org/\"")).is_ok());
    }
}

#[test]
fn of_two_settings_that_do_not_fit_the_one_that_was_set_is_named() {
    let variable = "HOLM_SERVER__CONNECTIONS_MAX";
    let said = load_with("", &[(variable, "4000")]).unwrap_err().to_string();
    for part in ["(default): `server.connections_signed_in`", variable] {
        assert!(said.contains(part) && !said.contains("example"), "{said}");
    }
    refused(
        "[builds]\nupload_mb_max = 9000\nsources_workspace_mb_max = 1",
        &["holm.toml:3: `builds.sources", "`builds.upload_mb_max` is set in", "holm.toml:2"],
    );
}

#[test]
fn a_data_folder_without_a_name_is_refused_wherever_it_is_set() {
    refused("[data]\nfolder = \"\"", &["holm.toml:2: `data.folder` is empty", "./data"]);
    let by_variable = load_with("", &[("HOLM_DATA__FOLDER", "")]).unwrap_err().to_string();
    assert!(by_variable.contains("HOLM_DATA__FOLDER: `data.folder` is empty"), "{by_variable}");
    let flags = [("data.folder", String::new())];
    let by_flag = load(None, std::iter::empty(), &flags).unwrap_err().to_string();
    assert!(by_flag.contains("command line: `data.folder` is empty"), "{by_flag}");
}

#[test]
fn a_data_folder_that_a_shell_should_have_replaced_is_refused() {
    refused("[data]\nfolder = \"~/holm\"", &["holm.toml:2: `data.folder` is `~/holm`", "/var/lib"]);
    assert!(load_text("[data]\nfolder = \"./~\"").is_ok());
}

#[test]
fn entries_of_lists_that_nothing_could_match_are_refused() {
    for (key, entry) in [
        ("egress.inside", "http://x"),
        ("egress.no_proxy", "http://x"),
        ("gateway.domains", "https://x"),
        ("gateway.domains", ""),
        ("gateway.domains", "*.x"),
        ("builder.inside", "*.lan"),
        ("images.inside", "*"),
        ("callbacks.inside", "*.lan"),
        ("runners.labels", ""),
        ("runners.labels", "a b"),
    ] {
        refused(&format!("{key} = [\"ok\", \"{entry}\"]"), &[&format!("`{key}` has"), entry]);
    }
    refused("[store]\nurl = \"postgres://u:hush@h/d?what=x\"", &["`store.url`", "parameter"]);
}

#[test]
fn numbers_that_no_machine_has_room_for_are_refused() {
    let keys = [
        "server.lingering_max",
        "store.connections",
        "store.waiting_max",
        "node.processes_max",
        "deployments.launches_max",
        "deployments.looks_max",
        "runners.requests_max",
        "models.log_max",
    ];
    for key in keys {
        let text = format!("{key} = {}", i64::MAX);
        refused(&text, &[&format!("`{key}` must be at most")]);
    }
    assert!(load_text("store.connections = 1024\nstore.waiting_max = 1048576").is_ok());
}

/// Uses the list of known keys, so that a new number cannot be forgotten.
#[test]
fn every_number_has_bounds() {
    // What zero means for these; for all others it is no value.
    let zero = [
        ("server.threads", "one for each core"),
        ("server.busy_poll_us", "a thread sleeps at once"),
        ("meter.budgets_max", "no budgets"),
        ("gateway.body_bytes_max", "no limit"),
        ("node.ready", "nothing is prepared"),
        ("node.memory_mb", "what the machine has"),
        ("node.processes_max", "what the machine has"),
        ("node.disks_max", "no disks of limited size"),
        ("node.disk_mb", "half of what is free"),
        ("node.volume_mb", "a quarter of what is free"),
        ("node.drive_mb", "an eighth of a workspace's volumes"),
        ("images.disk_mb", "a quarter of what is free"),
        ("registry.disk_mb", "a quarter of what is free"),
        ("registry.keep_tags", "all tags"),
        ("builder.kept_mb", "a quarter of what is free"),
        ("objects.retries", "none"),
        ("jobs.slots", "no tasks here"),
        ("jobs.call_slots", "no calls from here"),
        ("jobs.open_public_max", "none for strangers"),
        ("jobs.lost_attempts_max", "a task that is lost has failed"),
        ("egress.cached_names_max", "names are always asked for"),
        ("models.retry_percent", "no retries"),
        ("models.output_tokens_max", "nothing is assumed"),
        ("models.cache_bytes_max", "no cache"),
        ("models.cache_workspace_bytes_max", "no cache"),
        ("models.cache_answer_bytes_max", "no cache"),
        ("log.refusals_per_second", "only how many there were"),
    ];
    let mut wrong = Vec::new();
    for key in known_keys().into_iter().filter(|key| usual(key).is_integer()) {
        let is_refused = |value: i64| {
            let error = load_text(&format!("{key} = {value}")).err();
            let said = error.map_or_else(String::new, |error| error.to_string());
            said.contains(&format!("`{key}`")) && said.contains("holm.toml:1")
        };
        // A quota of zero forbids the kind.
        let may_be_zero =
            key.starts_with("limits.quotas.") || zero.iter().any(|(name, _)| key == *name);
        if is_refused(0) == may_be_zero {
            wrong.push(format!("{key} = 0"));
        }
        if !is_refused(i64::MAX) {
            wrong.push(format!("{key} = {}", i64::MAX));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unknown_sections_are_refused_even_if_empty() {
    refused("[server]\n[nosuch]", &["holm.toml:2", "`nosuch`"]);
    refused("[server.tls]", &["`server.tls`"]);
    assert!(load_text("[server]\n[limits.quotas]\n").is_ok());
}

#[test]
fn limits_of_deployments_builds_and_the_registry_say_what_is_right() {
    // These lists and texts may be empty, and these times may be zero.
    let free = [
        "deployments.extra_idle",
        "deployments.last_idle",
        "deployments.drain_timeout",
        "builds.shown_for",
        "builder.network",
        "builder.inside",
        "builder.sandbox_images",
    ];
    let gateway = ["agent_idle", "agent_time", "demand_repeat"].map(|key| format!("gateway.{key}"));
    let sections = ["deployments.", "snapshots.", "s3.", "builds.", "builder.", "registry."];
    let limits = known_keys()
        .into_iter()
        .filter(|key| sections.iter().any(|section| key.starts_with(section)))
        .chain(gateway)
        .filter(|key| !free.contains(&key.as_str()) && !usual(key).is_integer());
    for key in limits {
        let nothing = match usual(&key) {
            toml::Value::String(text) if text.parse::<Span>().is_ok() => "\"0s\"",
            _ => "\"\"",
        };
        refused(&format!("{key} = {nothing}"), &[&format!("holm.toml:1: `{key}`")]);
        let variable = format!("HOLM_{}", key.to_uppercase().replace('.', "__"));
        let error = load_with("", &[(&variable, nothing.trim_matches('"'))]).unwrap_err();
        assert!(error.to_string().contains(&variable), "{error}");
    }
    refused("[deployments]\nreplicas = 200", &["`deployments.replicas`", "replicas_max"]);
    refused(
        "[deployments]\nrestart_pause = \"1h\"",
        &["`deployments.restart_pause_max`", "at least deployments.restart_pause"],
    );
    refused("[registry]\ndisk_mb = 2", &["`registry.disk_mb`", "at least 16"]);
    refused("[builds]\nlease = \"1s\"", &["`builds.lease`", "at least 30s"]);
    refused(
        "[builds]\nupload_mb_max = 9000",
        &["`builds.sources_workspace_mb_max`", "at least builds.upload_mb_max"],
    );
    refused("[builder]\nnode_image = \"No Name\"", &["`builder.node_image`", "holm/base"]);
    refused("[builder]\nsandbox_images = [\"A b\"]", &["`builder.sandbox_images`", "`A b`"]);
    for wrong in ["http://packages.lan", "packages.lan:80", "a b", "", "packages.lan/x"] {
        let text = format!("[builder]\ninside = [\"ok.lan\", \"{wrong}\"]");
        refused(&text, &["`builder.inside`", "name hosts alone"]);
    }
    assert!(load_text("[builder]\ninside = [\"a.lan\", \"10.0.0.7\", \"fd00::7\"]").is_ok());
}

#[test]
fn callbacks_go_inside_to_names_only() {
    let inside = |host: &str| format!("[callbacks]\ninside = [\"hooks.lan\", \"{host}\"]");
    for number in ["10.0.0.7", "fd00::7", "[fd00::7]", "0x7f.1", "167772167", "LOCALHOST."] {
        refused(
            &inside(number),
            &["`callbacks.inside`", number, "name the host, such as hooks.lan"],
        );
    }
    refused(&inside("http://hooks.lan"), &["`callbacks.inside`", "name hosts alone"]);
    assert!(load_text(&inside("host.docker.internal")).is_ok());
}

#[test]
fn times_and_thresholds_that_would_stop_everything_are_refused() {
    let times = [
        ("gateway", "wait_timeout"),
        ("gateway", "connect_timeout"),
        ("gateway", "answer_idle"),
        ("gateway", "socket_idle"),
        ("egress", "launch_wait"),
    ];
    for (section, name) in times {
        let text = format!("[{section}]\n{name} = \"0s\"");
        refused(&text, &[&format!("`{section}.{name}` must be at least 100ms")]);
    }
    refused(
        "[store]\nlog_pages = 10\nlog_pages_max = 9",
        &["`store.log_pages_max` must be at least store.log_pages"],
    );
    assert!(load_text("[store]\nlog_pages = 10\nlog_pages_max = 10").is_ok());
    refused("[server]\nthreads = 1025", &["`server.threads`", "at most 1024"]);
    assert!(load_text("[server]\nthreads = 1024").is_ok());
    refused("[server]\nbusy_poll_us = 1001", &["`server.busy_poll_us`", "at most 1000"]);
    assert!(load_text("[server]\nbusy_poll_us = 0").is_ok());
    refused("[server]\nbody_bytes_max = 0", &["`server.body_bytes_max` must be at least 1"]);
    // No certificate would ever be ordered.
    refused("[domains.acme]\norders_workspace_hour_max = 0", &["must be at least 1"]);
}

#[test]
fn regions_that_look_like_those_of_the_hosted_service_are_doubted() {
    let doubted = |name: &str| {
        let config =
            load_text(&format!("[placement]\nregions = [{{ name = \"{name}\" }}]")).unwrap();
        config.warnings.iter().any(|warning| warning.contains(&format!("`{name}`")))
    };
    for name in ["us-pdx-1", "us-was-1", "eu-lon-1", "eu-fra-1", "auto"] {
        assert!(doubted(name), "{name}");
    }
    for name in ["local", "berlin", "rack-7", "eu-berlin-1", "de-ber", "automatic"] {
        assert!(!doubted(name), "{name}");
    }
    assert!(load_text("").unwrap().warnings.is_empty());
}

#[test]
fn what_does_nothing_is_doubted() {
    let warnings =
        |text: &str, variable: &str| load_with(text, &[(variable, "x")]).unwrap().warnings;
    let bucket = "[objects]\nbucket = \"b\"";
    for (text, variable, wanted) in [
        ("", "HOLM_SERVER_PUBLIC_URL", Some("HOLM_SERVER__PUBLIC_URL")),
        ("", "HOLM_STORE_URL", Some("HOLM_STORE__URL")),
        ("", "HOLM_API_KEY", None),
        ("", "HOLM_SERVER", None),
        ("", "PATH", None),
        (bucket, "PATH", Some("objects.endpoint")),
    ] {
        let found = warnings(text, variable);
        match wanted {
            Some(wanted) => assert!(matches!(&*found, [one] if one.contains(wanted)), "{found:?}"),
            None => assert!(found.is_empty(), "{variable}: {found:?}"),
        }
    }
}

#[test]
fn secrets_of_the_settings_are_not_shown() {
    let config = load_text("[store]\nurl = \"postgres://u:hush@h/d\"").unwrap();
    assert!(!format!("{config:?}").contains("hush"));
}

#[test]
fn every_quota_is_of_a_kind() {
    let quotas = load_text("").unwrap().limits.quotas;
    for plural in quotas.keys() {
        assert!(types::KindName::ALL.iter().any(|kind| kind.plural() == plural), "{plural}");
    }
}

fn known_keys() -> Vec<String> {
    let mut keys = Vec::new();
    let mut section = String::new();
    for line in EXAMPLE.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, _)) =
            line.split_once(" = ").filter(|(key, _)| !key.starts_with(['#', ' ']))
        {
            keys.push(format!("{section}.{key}"));
        }
    }
    keys
}

/// Returns the default of a key.
fn usual(key: &str) -> toml::Value {
    let all: toml::Value = EXAMPLE.parse::<toml::Table>().unwrap().into();
    key.split('.').fold(all, |value, name| value[name].clone())
}

#[test]
fn an_object_service_is_whole_or_absent() {
    assert!(load_text("").unwrap().objects.settings().unwrap().is_none());
    let begun = "[objects]\nendpoint = \"https://s3.example.com\"\n";
    refused(begun, &["`objects.bucket`"]);
    let named = format!("{begun}bucket = \"b\"\nkey_id = \"k\"\n");
    refused(&named, &["`objects.secret`"]);
    let whole = format!("{named}secret = \"do not tell\"\n");
    let config = load_text(&whole).unwrap();
    let settings = config.objects.settings().unwrap().unwrap();
    assert_eq!(settings.bucket, "b");
    assert!(!format!("{config:?} {settings:?}").contains("tell"));
    refused(&format!("{whole}secret_file = \"/f\"\n"), &["`objects.secret_file`"]);
    for endpoint in ["s3.example.com", "ftp://a", "https://a/b", "https://u:p@a", "https://a?b"] {
        refused(&format!("[objects]\nendpoint = \"{endpoint}\""), &["`objects.endpoint`"]);
    }
    refused("[objects]\nparallel = 0", &["`objects.parallel`"]);
    refused("[egress]\naddresses = [\"10.0.0.1/8\"]", &["`egress.addresses`", "10.0.0.1/8"]);
    refused("[egress]\nproxy_user = \"u\"", &["`egress.proxy_user`", "egress.proxy"]);
    for proxy in ["socks5://p.example:3128", "https://u:p@p.example", "https://p.example/x"] {
        let text = format!("[egress]\nproxy = \"{proxy}\"");
        refused(&text, &["`egress.proxy`", "http://", "https://"]);
    }
    assert!(load_text("[egress]\nproxy = \"https://p.example\"").is_ok());
    refused("[egress]\nidle = \"0s\"", &["`egress.idle`"]);
}
