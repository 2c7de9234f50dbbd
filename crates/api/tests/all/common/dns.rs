//! DNS records that a test controls.

use control::domains::{Leads, Lookup, NoAnswer};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Mutex;

#[derive(Default)]
pub struct Zone(Mutex<Records>);

#[derive(Default)]
struct Records {
    texts: BTreeMap<String, Vec<String>>,
    aliases: BTreeMap<String, Vec<String>>,
    silent: bool,
}

impl Zone {
    pub fn set_text(&self, name: &str, text: &str) {
        self.0.lock().expect("a zone").texts.insert(name.into(), vec![text.into()]);
    }

    pub fn add_text(&self, name: &str, text: &str) {
        let mut records = self.0.lock().expect("a zone");
        records.texts.entry(name.into()).or_default().push(text.into());
    }

    pub fn set_alias(&self, name: &str, to: &str) {
        self.0.lock().expect("a zone").aliases.insert(name.into(), vec![to.into()]);
    }

    pub fn forget(&self) {
        *self.0.lock().expect("a zone") = Records::default();
    }

    pub fn fall_silent(&self) {
        self.0.lock().expect("a zone").silent = true;
    }

    fn find(
        &self,
        name: &str,
        of: impl Fn(&Records) -> &BTreeMap<String, Vec<String>>,
    ) -> Result<Vec<String>, NoAnswer> {
        let records = self.0.lock().expect("a zone");
        if records.silent {
            return Err(NoAnswer { name: name.into(), why: "timed out".into() });
        }
        Ok(of(&records).get(name).cloned().unwrap_or_default())
    }
}

impl Lookup for Zone {
    fn texts<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, NoAnswer>> {
        Box::pin(async move { self.find(name, |records| &records.texts) })
    }

    fn leads<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Leads, NoAnswer>> {
        Box::pin(async move {
            let aliases = self.find(name, |records| &records.aliases)?;
            Ok(Leads { aliases, addresses: Vec::new() })
        })
    }
}
