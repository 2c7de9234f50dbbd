//! The data about providers: one file for each in `data/providers`, compiled in.

use crate::dialect::Dialect;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use types::kinds::model::ModelType;
use types::parts::TextMap;

macro_rules! files {
    ($($kind:ident $name:literal),* $(,)?) => {
        /// Each type with its name and the text of its file.
        const FILES: &[(ModelType, &str, &str)] = &[
            $((ModelType::$kind, $name, include_str!(concat!("../data/providers/", $name, ".toml"))),)*
        ];
    };
}

files! {
    Openai "openai",
    Anthropic "anthropic",
    Gemini "gemini",
    Vertexai "vertexai",
    Mistral "mistral",
    Cohere "cohere",
    Xai "xai",
    Deepseek "deepseek",
    Groq "groq",
    Cerebras "cerebras",
    AzureOpenaiService "azure-openai-service",
    AzureAiInference "azure-ai-inference",
    AzureMarketplace "azure-marketplace",
    Huggingface "huggingface",
    HfPublicEndpoint "hf_public_endpoint",
    HfPrivateEndpoint "hf_private_endpoint",
    PublicModel "public_model",
    Mcp "mcp",
}

const SERVICES: &str = include_str!("../data/services.toml");

/// All providers of models, and the other services that a connection can be made to.
#[derive(Debug)]
pub struct Catalogue {
    models: BTreeMap<ModelType, Entry>,
    services: Vec<Service>,
}

/// Returns the catalogue that is compiled in.
pub fn catalogue() -> &'static Catalogue {
    static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
        #[expect(clippy::expect_used, reason = "the files are compiled in, and a test reads them")]
        Catalogue::read().expect("the catalogue of providers can be read")
    });
    &CATALOGUE
}

impl Catalogue {
    fn read() -> Result<Self, toml::de::Error> {
        #[derive(Deserialize)]
        struct Services {
            service: Vec<Service>,
        }
        let models = FILES.iter().map(|(kind, name, text)| {
            let mut entry: Entry = toml::from_str(text)?;
            entry.name = name;
            if entry.integrations.is_empty() {
                entry.integrations = vec![(*name).to_owned()];
            }
            Ok((*kind, entry))
        });
        let services: Services = toml::from_str(SERVICES)?;
        Ok(Self { models: models.collect::<Result<_, _>>()?, services: services.service })
    }

    pub fn entry(&self, kind: ModelType) -> &Entry {
        // Every type has a file; a test checks all of them.
        &self.models[&kind]
    }

    pub fn service(&self, integration: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == integration)
    }

    /// Finds a provider by the name of its type.
    pub fn named(&self, name: &str) -> Option<&Entry> {
        self.models.values().find(|entry| entry.name == name)
    }

    /// Finds the provider whose models can be used through a connection of this type.
    pub fn of_integration(&self, integration: &str) -> Option<(ModelType, &Entry)> {
        let found = self.models.iter().find(|(_, entry)| entry.name == integration)?;
        found.1.is_integration().then_some((*found.0, found.1))
    }

    /// Returns whether a model of this type may use a connection of that type.
    pub fn fits(&self, integration: &str, kind: ModelType) -> bool {
        self.entry(kind).integrations.iter().any(|fits| fits == integration)
    }

    /// Lists the names of everything a connection can be made to.
    pub fn integrations(&self) -> Vec<&str> {
        let models =
            self.models.values().filter(|entry| entry.is_integration()).map(|entry| entry.name);
        models.chain(self.services.iter().map(|service| service.name.as_str())).collect()
    }
}

/// One provider of models.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    #[serde(skip)]
    pub name: &'static str,
    pub display_name: String,
    /// Types of connections that its models can use. If the file has none, only the type of its own
    /// name.
    #[serde(default)]
    pub integrations: Vec<String>,
    /// Its address, unless the connection has another one.
    pub base: Option<String>,
    #[serde(default)]
    pub(crate) base_of_region: TextMap,
    /// Whether the connection must give the address.
    #[serde(default)]
    pub needs_endpoint: bool,
    /// Endings that people copy along with an address although the paths already have them. They
    /// are cut off.
    #[serde(default)]
    pub(crate) cuts: Vec<String>,
    /// Pairs of parts in whole addresses as the provider shows them. The path of an address is cut
    /// between the two.
    #[serde(default)]
    pub(crate) cuts_behind: Vec<String>,
    /// The dialect that requests are translated into if the provider does not know theirs.
    pub speaks: Dialect,
    /// Paths below a model that can be called, for callers who ask which there are.
    pub endpoints: Vec<String>,
    /// Headers of the caller that are passed on to this provider, in addition to those passed to
    /// all.
    #[serde(default)]
    pub(crate) keeps: Vec<String>,
    /// Defaults for the connection's settings.
    #[serde(default)]
    pub(crate) defaults: TextMap,
    pub credentials: Credentials,
    /// Headers to send. One that refers to a value that is not set is left out.
    #[serde(default)]
    pub(crate) headers: TextMap,
    pub(crate) paths: Paths,
    pub(crate) token: Option<TokenService>,
}

impl Entry {
    fn is_integration(&self) -> bool {
        self.integrations.iter().any(|integration| integration == self.name)
    }
}

/// How to present a key to a provider.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    pub(crate) header: String,
    pub(crate) form: String,
    /// Names of the connection's secrets that can hold the key. The first that is set is used.
    pub secrets: Vec<String>,
    /// Whether the provider can be called without a key.
    #[serde(default)]
    pub optional: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paths {
    pub(crate) chat: ByDialect,
    #[serde(default)]
    pub(crate) embeddings: ByDialect,
    pub(crate) models: Option<String>,
    /// Path for everything else: `{path}` is the path as sent, `{rest}` the same without its
    /// version.
    pub(crate) other: Option<String>,
}

/// A path for each dialect that the provider knows.
pub(crate) type ByDialect = BTreeMap<Dialect, String>;

/// The service that issues access tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenService {
    pub(crate) url: String,
    pub(crate) scope: Option<String>,
}

/// A service that has no models.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    pub name: String,
    pub display_name: String,
    pub(crate) token: Option<TokenService>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Otherwise the first user of a type without a file would be the one to find out.
    #[test]
    fn every_type_of_model_has_an_entry() {
        let schema = serde_json::to_value(schemars::schema_for!(ModelType)).unwrap();
        let names = schema["enum"].as_array().expect("the schema of an enumeration");
        assert_eq!(names.len(), FILES.len());
        for name in names {
            let kind: ModelType = serde_json::from_value(name.clone()).unwrap();
            let entry = catalogue().entry(kind);
            assert_eq!(&Value::from(entry.name), name);
            assert_eq!(json!(kind), *name);
            assert!(entry.paths.chat.contains_key(&entry.speaks), "{name} cannot be asked");
            assert!(entry.base.is_some() != entry.needs_endpoint, "{name} is nowhere");
            assert!(entry.credentials.form.contains("{secret}"), "{name}");
            assert!(
                entry
                    .integrations
                    .iter()
                    .all(|fits| catalogue().integrations().contains(&fits.as_str()))
            );
        }
    }

    #[test]
    fn connections_are_made_to_providers_and_services() {
        let names = catalogue().integrations();
        for name in ["openai", "azure-ai-inference", "huggingface", "gmail", "slack"] {
            assert!(names.contains(&name), "{name}");
        }
        assert!(!names.contains(&"mcp") && !names.contains(&"hf_private_endpoint"), "{names:?}");
        assert!(catalogue().fits("huggingface", ModelType::HfPrivateEndpoint));
        assert!(!catalogue().fits("openai", ModelType::Anthropic));
    }

    /// The published command line calls the alphabetically first path.
    #[test]
    fn the_first_endpoint_answers_messages() {
        use crate::operation::Operation;
        for entry in catalogue().models.values() {
            let first = entry.endpoints.iter().min().expect("an endpoint");
            assert_eq!(Operation::of(first), Operation::Chat(Dialect::OpenAi), "{}", entry.name);
        }
    }
}
