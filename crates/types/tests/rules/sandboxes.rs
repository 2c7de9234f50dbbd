//! Rules of sandboxes and applications.

use super::*;

#[test]
fn sandboxes_get_defaults_and_declare_any_port() {
    let sandbox: Sandbox = made(json!({"runtime": {"ttl": ""}, "triggers": null}));
    let runtime = sandbox.spec.runtime.unwrap();
    assert_eq!(
        (runtime.image.as_deref(), runtime.memory),
        (Some("blaxel/base-image:latest"), Some(4096))
    );
    assert_eq!(runtime.ttl, None);
    for port in [80, 443, 8080] {
        check_spec::<Sandbox>(json!({"runtime": {"ports": [{"target": port}]}}), &[]);
    }
    check_spec::<Sandbox>(json!({"runtime": {"extraArgs": {"tun": "enabled"}}}), &[]);
    check_spec::<Sandbox>(
        json!({"runtime": {"extraArgs": {"tun": "yes"}}}),
        &["spec.runtime.extraArgs.tun"],
    );
    check_spec::<Sandbox>(json!({"runtime": {"ttl": "soon"}}), &["spec.runtime.ttl"]);
    check_spec::<Sandbox>(json!({"runtime": {"expires": "soon"}}), &["spec.runtime.expires"]);
}

#[test]
fn sandbox_lifecycles_are_lengths_or_dates() {
    let policy = |kind: &str, value: &str| json!({"lifecycle": {"expirationPolicies": [{"type": kind, "value": value}]}});
    let field = ["spec.lifecycle.expirationPolicies[0].value"];
    check_spec::<Sandbox>(policy("ttl-idle", "30m"), &[]);
    check_spec::<Sandbox>(policy("ttl-max-age", "2026-04-16T09:30:00Z"), &field);
    check_spec::<Sandbox>(policy("date", "2026-04-16T09:30:00Z"), &[]);
    check_spec::<Sandbox>(policy("date", "30m"), &field);
    check_spec::<Sandbox>(
        json!({"lifecycle": {"terminatedRetention": "x"}}),
        &["spec.lifecycle.terminatedRetention"],
    );
}

#[test]
fn the_first_condition_ends_a_sandbox() {
    let sandbox: Sandbox = made(json!({
        "runtime": {"ttl": "2h"},
        "lifecycle": {"expirationPolicies": [{"type": "ttl-idle", "value": "30m"}, {"type": "ttl-max-age", "value": "1h"}]},
    }));
    assert_eq!(sandbox.expires_at(NOW, None), Some(NOW.plus_s(1800)));
    assert_eq!(sandbox.expires_at(NOW, Some(NOW.plus_s(3000))), Some(NOW.plus_s(3600)));
    assert_eq!(made::<Sandbox>(json!({})).expires_at(NOW, None), None);
}

#[test]
fn sandbox_volumes_are_fixed_and_at_most_one_persists() {
    let volume = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    check_spec::<Sandbox>(json!({"volumes": [volume("a")]}), &[]);
    check_spec::<Sandbox>(json!({"volumes": [volume("a"), volume("b")]}), &["spec.volumes"]);
    let unsized_volume = json!({"name": "a", "mountPath": "/a", "type": "ephemeral"});
    check_spec::<Sandbox>(json!({"volumes": [unsized_volume]}), &["spec.volumes[0].sizeMb"]);
    let at_root =
        json!({"volumes": [{"name": "a", "mountPath": "/"}], "runtime": {"storageMb": 5}});
    check_spec::<Sandbox>(at_root, &["spec.volumes[0].mountPath", "spec.runtime.storageMb"]);
    check_change::<Sandbox>(
        json!({"volumes": [volume("a")]}),
        json!({"volumes": []}),
        &["spec.volumes"],
    );
    check_change::<Sandbox>(json!({"volumes": [volume("a")]}), json!({}), &[]);
}

#[test]
fn a_disk_is_left_out_only_with_its_image() {
    let body = |runtime: Value| json!({"metadata": {"name": "a"}, "spec": {"runtime": runtime}});
    let old: Sandbox = made(json!({"runtime": {"image": "holm/one", "storageMb": 100}}));
    let disk_after = |runtime: Value| {
        let new = read::<Sandbox>(&body(runtime), Some(&old)).unwrap();
        new.spec.runtime.unwrap().storage_mb
    };
    assert_eq!(disk_after(json!({"image": "holm/one", "memory": 512})), Some(100));
    assert_eq!(disk_after(json!({"image": "holm/other"})), None);
}

#[test]
fn a_disk_is_emptied_only_for_another_image() {
    let body = |runtime: Value| json!({"metadata": {"name": "a"}, "spec": {"runtime": runtime}});
    let change = |old: &Sandbox, runtime: Value| {
        let new = read::<Sandbox>(&body(runtime), Some(old)).unwrap();
        let state = old.next_state(None, NOW);
        assert!(!state.fresh_disk, "a new sandbox has no disk that could be emptied");
        new.next_state(Some((old, &state)), NOW).fresh_disk
    };
    let old: Sandbox = made(json!({"runtime": {"image": "holm/one", "storageMb": 100}}));
    assert!(!change(&old, json!({"image": "holm/one", "memory": 512})));
    assert!(!change(&old, json!({"image": "holm/one", "storageMb": 200})));
    assert!(change(&old, json!({"image": "holm/one:2", "storageMb": 100})));
    assert!(change(&old, json!({"image": "holm/other"})));
    // The machine may still have one from before the sandbox was without.
    let without: Sandbox = made(json!({"runtime": {"image": "holm/one"}}));
    assert!(change(&without, json!({"image": "holm/one", "storageMb": 100})));
    assert!(!change(&without, json!({"image": "holm/other"})));
}

#[test]
fn a_proxy_is_turned_on_and_off_in_place() {
    let proxy = json!({"network": {"proxy": {}}});
    check_change::<Sandbox>(proxy.clone(), json!({"network": {}}), &[]);
    check_change::<Sandbox>(json!({}), proxy, &[]);
    let routing = |headers: Value| json!({"network": {"proxy": {"routing": [{"destinations": ["*"], "headers": headers}]}}});
    check_spec::<Sandbox>(routing(json!({"X-A": "{{SECRET:a}}"})), &[]);
    check_spec::<Sandbox>(
        routing(json!({"X-A": "a\r\nb"})),
        &["spec.network.proxy.routing[0].headers.X-A"],
    );
    check_spec::<Sandbox>(
        json!({"network": {"firewall": {"rulesets": ["odd"]}}}),
        &["spec.network.firewall.rulesets[0]"],
    );
    check_spec::<Sandbox>(
        json!({"network": {"egress": {"mode": "dedicated"}}}),
        &["spec.network.egress.gateway"],
    );
}

#[test]
fn what_no_pattern_can_mean_is_refused_and_odd_ones_are_names() {
    let proxy = |proxy: Value| json!({"network": {"proxy": proxy}});
    let odd = [
        "*",
        "*.example.com",
        "GET:POST:a.example/x*",
        "!DELETE:a.example",
        "!:a",
        "10.0.0.0/8",
        "10.0.0.1/8",
        "[::1]",
        "a..b",
        "UPPER.example",
        "::",
        "ftp://x",
    ];
    check_spec::<Sandbox>(proxy(json!({"allowedDomains": odd, "bypass": odd})), &[]);
    let at = "spec.network.proxy";
    for bad in ["a b", " a", "a\n", "a\u{7f}", "\u{a0}"] {
        let lists = proxy(json!({"forbiddenDomains": ["a", bad]}));
        check_spec::<Sandbox>(lists, &[&format!("{at}.forbiddenDomains[1]")]);
    }
    check_spec::<Sandbox>(proxy(json!({"bypass": [""]})), &[&format!("{at}.bypass[0]")]);
    check_spec::<Sandbox>(
        json!({"network": {"allowedDomains": ["x\ty"]}}),
        &["spec.network.allowedDomains[0]"],
    );
    for none in [json!({}), json!({"destinations": []})] {
        let field = format!("{at}.routing[0].destinations");
        check_spec::<Sandbox>(proxy(json!({"routing": [none]})), &[&field]);
    }
    let unnamed = json!({"destinations": ["a"], "secrets": {"": "x"}});
    check_spec::<Sandbox>(
        proxy(json!({"routing": [unnamed]})),
        &[&format!("{at}.routing[0].secrets")],
    );
    let many = json!({"destinations": vec!["a"; 1000]});
    let some = json!(vec![many.clone(); 4]);
    check_spec::<Sandbox>(proxy(json!({"routing": some})), &[]);
    check_spec::<Sandbox>(proxy(json!({"routing": vec![many; 5]})), &["spec.network"]);
}

#[test]
fn applications_take_what_the_command_line_puts_into_revisions() {
    let application: Application =
        made(json!({"revisions": [{"image": "app/a:1", "envs": [{"name": "A"}]}]}));
    let spec = application.spec;
    assert_eq!(
        (spec.image.as_deref(), spec.memory, spec.port),
        (Some("app/a:1"), Some(2048), Some(8080))
    );
    assert_eq!((spec.envs.map(|envs| envs.len()), spec.revisions), (Some(1), None));
    check_spec::<Application>(json!({"urls": [{"domain": "A"}]}), &["spec.urls[0].domain"]);
    check_spec::<Application>(
        json!({"urls": [{"domain": "a.example", "subdomain": "a.b"}]}),
        &["spec.urls[0].subdomain"],
    );
    check_spec::<Application>(json!({"port": 0}), &["spec.port"]);
}
