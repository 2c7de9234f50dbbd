//! Catalogues of what the operator offers: regions, hubs, templates, features and news.

use crate::http::call::{Anyone, Call};
use crate::http::error::Error;
use crate::http::reply::Reply;
use auth::Member;
use control::error::Absent;
use control::placement_policies;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;
use types::wire::{
    ChangelogResponse, Configuration, Continent, Country, Feature, Features, LocationResponse,
    McpDefinition, PublicIps, SandboxDefinition, Template,
};

pub(crate) async fn configuration(call: Call<Member>) -> Result<Reply<Configuration>, Error> {
    let regions = &call.app.settings.regions;
    let countries: BTreeSet<&String> =
        regions.iter().filter_map(|region| region.country.as_ref()).collect();
    let continents: BTreeSet<&String> =
        regions.iter().filter_map(|region| region.continent.as_ref()).collect();
    let country = |name: &&String| Country {
        name: Some((*name).clone()),
        display_name: Some(name.to_uppercase()),
    };
    let continent = |name: &&String| Continent {
        name: Some((*name).clone()),
        display_name: Some(name.to_uppercase()),
    };
    Ok(Reply::of(&Configuration {
        continents: Some(continents.iter().map(continent).collect()),
        countries: Some(countries.iter().map(country).collect()),
        detected_region: regions.first().and_then(|region| region.name.clone()),
        private_locations: Some(Vec::new()),
        regions: Some(regions.clone()),
    }))
}

pub(crate) async fn locations(call: Call<Member>) -> Result<Reply<Vec<LocationResponse>>, Error> {
    let location = |region: &types::wire::Region| LocationResponse {
        continent: region.continent.clone(),
        country: region.country.clone(),
        flavors: Some(placement_policies::flavors_here()),
        location: region.location.clone(),
        region: region.name.clone(),
        status: Some("healthy".into()),
    };
    Ok(Reply::of(&call.app.settings.regions.iter().map(location).collect::<Vec<_>>()))
}

pub(crate) async fn changelog(call: Call<Anyone>) -> Result<Reply<ChangelogResponse>, Error> {
    Ok(Reply::of(&ChangelogResponse {
        entries: Some(call.app.settings.catalogue.changelog.clone()),
    }))
}

pub(crate) async fn features(call: Call<Member>) -> Result<Reply<Features>, Error> {
    let on = call.app.settings.catalogue.features.iter().filter(|(_, on)| **on);
    Ok(Reply::of(&Features { features: on.map(|(key, _)| (key.clone(), true)).collect() }))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct FeatureQuery {
    #[expect(dead_code, reason = "declared by the interface; no flag differs between accounts")]
    /// The account to evaluate the flag for. Flags are the same for all accounts of an
    /// installation.
    pub account: Option<String>,
}

pub(crate) async fn feature(call: Call<Member, FeatureQuery>) -> Result<Reply<Feature>, Error> {
    let key = call.path.name().to_owned();
    let enabled = call.app.settings.catalogue.features.get(&key).copied();
    let enabled = enabled.ok_or_else(|| Error::from(Absent::Feature))?;
    let feature = Feature {
        enabled,
        evaluated_at: call.app.world.now(),
        feature_key: key,
        ..Feature::default()
    };
    Ok(Reply::of(&feature))
}

pub(crate) async fn templates(call: Call<Member>) -> Result<Reply<Vec<Template>>, Error> {
    Ok(Reply::of(&call.app.settings.catalogue.templates))
}

pub(crate) async fn template(call: Call<Member>) -> Result<Reply<Template>, Error> {
    let named = |template: &&Template| template.name.as_deref() == Some(call.path.name());
    match call.app.settings.catalogue.templates.iter().find(named) {
        Some(template) => Ok(Reply::of(template)),
        None => Err(Absent::Template.into()),
    }
}

pub(crate) async fn mcp_hub(call: Call<Member>) -> Result<Reply<Vec<McpDefinition>>, Error> {
    let mut offered = call.app.settings.catalogue.servers.clone();
    if let Some(machine) = call.app.machine() {
        // An image that was not made on this machine cannot run on it. Servers without an image run
        // elsewhere.
        let is_here = |image: &str| machine.find_image(image).is_ok();
        offered.retain(|offer| offer.image.as_deref().is_none_or(is_here));
    }
    Ok(Reply::of(&offered))
}

pub(crate) async fn sandbox_hub(
    call: Call<Member>,
) -> Result<Reply<Vec<SandboxDefinition>>, Error> {
    let mut offered = call.app.settings.catalogue.sandboxes.clone();
    if let Some(machine) = call.app.machine() {
        // An image that was not made on this machine cannot be started on it.
        offered.retain(|offer| {
            offer.image.as_deref().is_some_and(|image| machine.find_image(image).is_ok())
        });
    }
    Ok(Reply::of(&offered))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct RegionQuery {
    /// Only this region.
    pub region: Option<String>,
}

pub(crate) async fn public_ips(call: Call<Member, RegionQuery>) -> Result<Reply<PublicIps>, Error> {
    let mut all = control::egress::public_ips(&call.app.settings);
    if let Some(region) = &call.query.region {
        all.retain(|name, _| name == region);
    }
    Ok(Reply::of(&PublicIps(all)))
}
