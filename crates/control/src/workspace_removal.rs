//! What happens to everything in a workspace before the workspace is deleted.

use crate::context::Context;
use crate::engine::{self, Held, Managed};
use crate::error::Error;
use std::cmp::Reverse;
use store::Tx;
use types::KindName;
use types::kinds::{
    Agent, Application, CustomDomain, Drive, EgressGateway, EgressIp, Function, Image, ImageShare,
    IntegrationConnection, Job, Model, Policy, Preview, PreviewToken, Sandbox, Schedule, Secret,
    Snapshot, Volume, VolumeTemplate, Vpc,
};

/// Gives back what the objects of a workspace hold, so that nothing is billed or shared any more
/// once their rows are deleted in the same transaction. It does not matter what uses what, because
/// all of it goes.
pub fn release_all(context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
    let mut kinds = KindName::ALL.to_vec();
    // An object may still need what contains it.
    kinds.sort_by_key(|kind| Reverse(kind.parents().len()));
    kinds.into_iter().try_for_each(|kind| release_kind(context, tx, kind))
}

fn release_kind(context: &Context, tx: &mut Tx<'_>, kind: KindName) -> Result<(), Error> {
    match kind {
        KindName::Agent => release::<Agent>(context, tx),
        KindName::Application => release::<Application>(context, tx),
        KindName::CustomDomain => release::<CustomDomain>(context, tx),
        KindName::Drive => release::<Drive>(context, tx),
        KindName::EgressGateway => release::<EgressGateway>(context, tx),
        KindName::EgressIp => release::<EgressIp>(context, tx),
        KindName::Function => release::<Function>(context, tx),
        KindName::Image => release::<Image>(context, tx),
        KindName::ImageShare => release::<ImageShare>(context, tx),
        KindName::IntegrationConnection => release::<IntegrationConnection>(context, tx),
        KindName::Job => release::<Job>(context, tx),
        KindName::Model => release::<Model>(context, tx),
        KindName::Policy => release::<Policy>(context, tx),
        KindName::Preview => release::<Preview>(context, tx),
        KindName::PreviewToken => release::<PreviewToken>(context, tx),
        KindName::Sandbox => release::<Sandbox>(context, tx),
        KindName::Schedule => release::<Schedule>(context, tx),
        KindName::Secret => release::<Secret>(context, tx),
        KindName::Snapshot => release::<Snapshot>(context, tx),
        KindName::Volume => release::<Volume>(context, tx),
        KindName::VolumeTemplate => release::<VolumeTemplate>(context, tx),
        KindName::Vpc => release::<Vpc>(context, tx),
    }
}

fn release<K: Managed>(context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
    engine::for_each(context, tx, |tx, held: Held<K>| K::release(context, tx, &held))
}
