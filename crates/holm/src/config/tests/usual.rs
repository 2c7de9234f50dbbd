//! Defaults that stand twice: in the example file, and in the crates, whose tests use them.

use super::load_text;
use crate::config::Images;
use std::fmt::Debug;
use std::net::Ipv4Addr;
use std::path::PathBuf;

#[track_caller]
fn same<T: Debug>(made: &T, usual: &T) {
    assert_eq!(format!("{made:#?}"), format!("{usual:#?}"));
}

/// What other crates take for usual is what a server without a file has. All of a struct is
/// compared, by its text.
#[test]
fn the_usual_settings_of_all_parts_are_the_defaults() {
    let config = load_text("").unwrap();
    let share = config.node.workspace_share_percent;
    same(&config.server.bodies(), &control::BodyLimits::default());
    same(&config.auth.limits(), &auth::Limits::default());
    same(&config.first_start.wishes(), &auth::setup::Wishes::default());
    let models = config.models.settings();
    same(&config.gateway.settings(models), &gateway::Settings::default());
    same(&config.models.asking(), &control::Models::default());
    same(&config.egress.own_addresses().unwrap(), &control::Egress::default());
    let (folder, address) = (PathBuf::new, Ipv4Addr::LOCALHOST);
    let way_out = config.egress.settings(&folder(), address, &[], Vec::new()).unwrap();
    same(&way_out.limits, &egress::Limits::default());
    same(&config.jobs.settings(share), &jobs::Settings::default());
    same(&config.runners.settings(), &jobs::runners::Settings::default());
    same(&config.logs.settings(), &jobs::logs::Settings::default());
    same(&config.logs.searches(), &jobs::logs::SearchLimits::default());
    same(&config.deployments.settings(share), &control::Deployments::default());
    same(&config.snapshots.settings(), &control::Snapshots::default());
    let unused_after = config.snapshots.offload_after.0;
    same(&config.objects.template_copies(unused_after), &control::TemplateCopies::default());
    same(&config.s3.settings(), &control::S3Limits::default());
    same(&config.builds.settings(), &control::builds::Settings::default());
    let usual = host::BuildSettings::new(folder());
    same(&config.builder.settings(&config.builds, folder(), usual.kept_mb), &usual);
    let made = config.store_settings();
    same(&made, &store::Settings::new(made.target.clone(), &made.key_file));

    // On purpose: tests open many nodes, and each keeps these ready.
    let usual = node::Limits::default();
    same(&node::Limits { networks_ready: usual.networks_ready, ..config.node.limits() }, &usual);
    // On purpose: the server looks how much disk is free.
    let usual = host::RegistrySettings::default();
    same(&config.registry.settings(usual.disk_mb, share), &usual);
    // On purpose: instances mount their images in user namespaces.
    let usual = images::Settings::default();
    same(&images::Settings { overlay: usual.overlay, ..Images::settings() }, &usual);
}
