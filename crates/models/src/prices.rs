//! What models cost: lists of prices, and exact costs computed from them.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use types::kinds::model::ModelType;
use types::models::TokenUsage;

const BUILTIN: &str = include_str!("../data/prices.toml");

/// Picodollars in a nanodollar. Prices per token need up to three digits below a nanodollar.
const PICO: u128 = 1000;
/// Factor on the price of a call with `service_tier: priority`.
const PRIORITY: u64 = 2;

/// A list of prices. Its version is stored with every cost that was computed from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceTable {
    version: String,
    /// Sorted so that the first pattern that matches counts.
    prices: BTreeMap<ModelType, Vec<(Pattern, Price)>>,
}

/// A name, or the beginning of names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: String,
    is_prefix: bool,
}

/// The price of a model, and how many tokens it can take and return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    rates: Rates,
    long: Option<Long>,
    /// Most tokens of input and output together.
    pub context: u64,
    /// Most tokens of output.
    pub max_output: u64,
}

/// Picodollars per token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rates {
    input: u64,
    cached: u64,
    cache_written: u64,
    cache_written_hour: u64,
    output: u64,
    reasoning: u64,
}

/// Rates for all tokens of calls whose input is longer than `over`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Long {
    over: u64,
    rates: Rates,
}

/// Why a file is not a list of prices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPrices {
    #[error("{0}")]
    Syntax(String),
    #[error("price {at} (`{model}`): {why}")]
    Price { at: usize, model: String, why: &'static str },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// A date, such as `2026-11-23`.
    version: String,
    #[serde(default)]
    price: Vec<Line>,
}

/// US dollars per million tokens, written as text so that they are exact.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    providers: Vec<ModelType>,
    models: Vec<String>,
    input: String,
    #[serde(default = "free")]
    output: String,
    cached: Option<String>,
    cache_written: Option<String>,
    cache_written_hour: Option<String>,
    reasoning: Option<String>,
    context: u64,
    #[serde(default)]
    max_output: u64,
    long: Option<LongLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongLine {
    over: u64,
    input: String,
    output: String,
    cached: Option<String>,
    cache_written: Option<String>,
    cache_written_hour: Option<String>,
    reasoning: Option<String>,
}

fn free() -> String {
    "0".into()
}

impl PriceTable {
    /// Returns the list that is compiled in.
    pub fn builtin() -> &'static Self {
        static TABLE: LazyLock<PriceTable> = LazyLock::new(|| {
            #[expect(clippy::expect_used, reason = "the file is compiled in, and a test reads it")]
            PriceTable::parse(BUILTIN).expect("the list of prices can be read")
        });
        &TABLE
    }

    pub fn parse(text: &str) -> Result<Self, BadPrices> {
        let file: File =
            toml::from_str(text).map_err(|error| BadPrices::Syntax(error.to_string()))?;
        if file.version.trim().is_empty() {
            return Err(BadPrices::Syntax("`version` is empty".into()));
        }
        let mut prices: BTreeMap<ModelType, Vec<(Pattern, Price)>> = BTreeMap::new();
        for (at, line) in file.price.iter().enumerate() {
            let price = Price::of(line).map_err(|why| BadPrices::Price {
                at: at + 1,
                model: line.models.first().cloned().unwrap_or_default(),
                why,
            })?;
            for provider in &line.providers {
                let patterns = line.models.iter().map(|model| (Pattern::new(model), price));
                prices.entry(*provider).or_default().extend(patterns);
            }
        }
        for patterns in prices.values_mut() {
            patterns.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.rank()));
        }
        Ok(Self { version: file.version, prices })
    }

    /// Puts another list in front of this one: its lines take precedence, however long their
    /// patterns are. The version names both.
    pub fn extended_by(&self, other: &Self) -> Self {
        let mut prices = other.prices.clone();
        for (provider, patterns) in &self.prices {
            prices.entry(*provider).or_default().extend(patterns.iter().cloned());
        }
        Self { version: format!("{}+{}", self.version, other.version), prices }
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    /// Finds the price of a model. Returns `None` if it is not known.
    pub fn find(&self, provider: ModelType, model: &str) -> Option<&Price> {
        let model = model.strip_prefix("models/").unwrap_or(model);
        let patterns = self.prices.get(&provider)?;
        patterns.iter().find(|(pattern, _)| pattern.fits(model)).map(|(_, price)| price)
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(start) => Self { text: start.to_owned(), is_prefix: true },
            None => Self { text: text.to_owned(), is_prefix: false },
        }
    }

    /// Ranks whole names before prefixes, and longer ones before shorter ones.
    fn rank(&self) -> (bool, usize) {
        (!self.is_prefix, self.text.len())
    }

    fn fits(&self, model: &str) -> bool {
        if self.is_prefix { model.starts_with(&self.text) } else { model == self.text }
    }
}

impl Price {
    fn of(line: &Line) -> Result<Self, &'static str> {
        if line.providers.is_empty() || line.models.is_empty() {
            return Err("names no provider or no model");
        }
        if line.context == 0 || line.max_output > line.context {
            return Err("`context` is required, and is no less than `max_output`");
        }
        let rates = Rates::of(
            &line.input,
            &line.output,
            [&line.cached, &line.cache_written, &line.cache_written_hour, &line.reasoning],
        )?;
        if line.max_output == 0 && rates.output > 0 {
            return Err("`max_output` is required where output costs");
        }
        let long = line.long.as_ref().map(|long| {
            let others =
                [&long.cached, &long.cache_written, &long.cache_written_hour, &long.reasoning];
            Rates::of(&long.input, &long.output, others)
                .map(|rates| Long { over: long.over, rates })
        });
        Ok(Self {
            rates,
            long: long.transpose()?,
            context: line.context,
            max_output: line.max_output,
        })
    }

    /// Returns the price of a call that is answered before others. No provider charges more than
    /// double for that.
    pub fn of_priority(self) -> Self {
        let double = |rates: Rates| Rates {
            input: rates.input.saturating_mul(PRIORITY),
            cached: rates.cached.saturating_mul(PRIORITY),
            cache_written: rates.cache_written.saturating_mul(PRIORITY),
            cache_written_hour: rates.cache_written_hour.saturating_mul(PRIORITY),
            output: rates.output.saturating_mul(PRIORITY),
            reasoning: rates.reasoning.saturating_mul(PRIORITY),
        };
        let long = self.long.map(|long| Long { rates: double(long.rates), ..long });
        Self { rates: double(self.rates), long, ..self }
    }

    /// Returns the cost in nanodollars, rounded up.
    pub fn cost(&self, usage: &TokenUsage) -> u64 {
        let rates = match self.long {
            Some(long) if usage.input > long.over => long.rates,
            _ => self.rates,
        };
        // A part never counts for more than the whole it belongs to.
        let cached = usage.cached.min(usage.input);
        let written = usage.cache_written.min(usage.input - cached);
        let hour = usage.cache_written_hour.min(written);
        let reasoning = usage.reasoning.min(usage.output);
        let parts = [
            (usage.input - cached - written, rates.input),
            (cached, rates.cached),
            (written - hour, rates.cache_written),
            (hour, rates.cache_written_hour),
            (usage.output - reasoning, rates.output),
            (reasoning, rates.reasoning),
        ];
        nanodollars(&parts)
    }

    /// Returns the most that a call can cost, in nanodollars, if its input has at most `input`
    /// tokens and its output at most `output`. The input is capped at the model's context. Without
    /// `output`, the model's own limit applies; for several answers to one request, pass the sum.
    pub fn most(&self, input: u64, output: Option<u64>) -> u64 {
        let input = input.min(self.context);
        let output = output.unwrap_or(self.max_output);
        let of = |rates: &Rates| {
            nanodollars(&[(input, rates.most_of_input()), (output, rates.most_of_output())])
        };
        let long = self.long.filter(|long| input > long.over);
        of(&self.rates).max(long.map_or(0, |long| of(&long.rates)))
    }
}

impl Rates {
    fn of(input: &str, output: &str, others: [&Option<String>; 4]) -> Result<Self, &'static str> {
        let (input, output) = (picodollars(input)?, picodollars(output)?);
        let [cached, cache_written, cache_written_hour, reasoning] = others;
        let or = |text: &Option<String>, else_: u64| text.as_deref().map_or(Ok(else_), picodollars);
        // Providers that charge for writing to the cache charge twice the input price for the long
        // kind.
        let hour = if cache_written.is_some() { input.saturating_mul(2) } else { input };
        Ok(Self {
            input,
            output,
            cached: or(cached, input)?,
            cache_written: or(cache_written, input)?,
            cache_written_hour: or(cache_written_hour, hour)?,
            reasoning: or(reasoning, output)?,
        })
    }

    fn most_of_input(&self) -> u64 {
        self.input.max(self.cached).max(self.cache_written).max(self.cache_written_hour)
    }

    fn most_of_output(&self) -> u64 {
        self.output.max(self.reasoning)
    }
}

fn nanodollars(parts: &[(u64, u64)]) -> u64 {
    let pico: u128 =
        parts.iter().map(|(tokens, rate)| u128::from(*tokens) * u128::from(*rate)).sum();
    u64::try_from(pico.div_ceil(PICO)).unwrap_or(u64::MAX)
}

/// Turns dollars per million tokens, with at most six decimals, into picodollars per token.
fn picodollars(text: &str) -> Result<u64, &'static str> {
    const DIGITS: usize = 6;
    let why = "an amount is not like `2.50`, with six digits behind the point at most";
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > DIGITS {
        return Err(why);
    }
    format!("{whole}{part:0<DIGITS$}").parse().map_err(|_| why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn real_models_have_their_price() {
        let table = PriceTable::builtin();
        let mini = table.find(ModelType::Openai, "gpt-4o-mini-2024-07-18").unwrap();
        let usage = TokenUsage { input: 1_000_000, output: 1_000_000, ..TokenUsage::default() };
        assert_eq!(mini.cost(&usage), 750_000_000);
        let cached = TokenUsage { cached: 1_000_000, ..usage };
        assert_eq!(mini.cost(&cached), 675_000_000);
        let faster = mini.of_priority();
        assert_eq!(faster.cost(&usage), 1_500_000_000);
        let sonnet = table.find(ModelType::Anthropic, "claude-3-7-sonnet-latest").unwrap();
        let written = TokenUsage { cache_written: 1_000_000, output: 0, ..usage };
        let kept_long = TokenUsage { cache_written_hour: 600_000, ..written };
        assert_eq!(
            (sonnet.cost(&written), sonnet.cost(&kept_long)),
            (3_750_000_000, 5_100_000_000)
        );
        assert!(table.find(ModelType::Openai, "gpt-4o-audio-preview").is_none());
        assert!(table.find(ModelType::Anthropic, "claude-sonnet-4-5-20250929").is_some());
        assert!(table.find(ModelType::Anthropic, "gpt-4o").is_none());
        let pro = table.find(ModelType::Gemini, "models/gemini-2.5-pro").unwrap();
        let short = TokenUsage { input: 200_000, ..TokenUsage::default() };
        let long = TokenUsage { input: 200_001, ..TokenUsage::default() };
        assert_eq!((pro.cost(&short), pro.cost(&long)), (250_000_000, 500_002_500));
        assert!(table.version().parse::<u32>().is_err() && table.version().len() == 10);
    }

    #[test]
    fn whole_names_and_longer_beginnings_come_first() {
        let line = |models: &str, input: &str| {
            format!(
                "[[price]]\nproviders=['openai']\nmodels=['{models}']\ninput='{input}'\ncontext=10\n"
            )
        };
        let text =
            format!("version='1'\n{}{}{}", line("a*", "1"), line("ab", "2"), line("ab*", "3"));
        let table = PriceTable::parse(&text).unwrap();
        let one = TokenUsage { input: 1, ..TokenUsage::default() };
        let cost = |table: &PriceTable, model| {
            table.find(ModelType::Openai, model).map(|price| price.cost(&one))
        };
        assert_eq!(
            ["a", "ab", "abc", "b"].map(|model| cost(&table, model)),
            [Some(1000), Some(2000), Some(3000), None]
        );
        let other = PriceTable::parse(&format!("version='2'\n{}", line("a*", "9"))).unwrap();
        let both = table.extended_by(&other);
        assert_eq!((both.version(), cost(&both, "ab")), ("1+2", Some(9000)));
    }

    #[test]
    fn prices_that_are_none_are_refused() {
        let with = |rest: &str| {
            PriceTable::parse(&format!(
                "version='1'\n[[price]]\nproviders=['openai']\nmodels=['a']\n{rest}"
            ))
        };
        for bad in [
            "input='x'\ncontext=1",
            "input='1.1234567'\ncontext=1",
            "input='-1'\ncontext=1",
            "input='1'",
            "input='1'\ncontext=0",
            "input='1'\noutput='1'\ncontext=1",
            "input='1'\ncontext=1\nmax_output=2",
            "input=1.5\ncontext=1",
            "input='1'\ncontext=1\nimput='2'",
            "input='99999999999999'\ncontext=1",
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
        assert!(with("input='0.0375'\ncontext=1").is_ok());
    }

    fn rates() -> impl Strategy<Value = Rates> {
        let rate = || 0..100_000_000_u64;
        (rate(), rate(), rate(), rate(), rate(), rate()).prop_map(
            |(input, cached, cache_written, cache_written_hour, output, reasoning)| Rates {
                input,
                cached,
                cache_written,
                cache_written_hour,
                output,
                reasoning,
            },
        )
    }

    proptest! {
        /// However a call's tokens are split up, it never costs more than was announced.
        #[test]
        fn nothing_costs_more_than_the_most(
            rates in rates(), long in rates(), over in 0..10_000_u64, has_long: bool,
            input in 0..20_000_u64, output in 0..20_000_u64, cached in 0..20_000_u64,
            written in 0..20_000_u64, hour in 0..20_000_u64, is_faster: bool, reasoning in 0..20_000_u64, more in 0..50_u64,
        ) {
            let long = has_long.then_some(Long { over, rates: long });
            let price = Price { rates, long, context: 20_000, max_output: 20_000 };
            let price = if is_faster { price.of_priority() } else { price };
            let usage = TokenUsage {
                input,
                output,
                cached,
                cache_written: written,
                cache_written_hour: hour,
                reasoning,
                estimated: false,
            };
            let cost = price.cost(&usage);
            prop_assert!(cost <= price.most(input, Some(output)));
            prop_assert!(cost <= price.most(input + more, Some(output + more)));
            prop_assert!(cost <= price.most(u64::MAX, None));
        }

        /// Costs are exact fractions, rounded up once.
        #[test]
        fn a_price_is_exact(dollars in 0..1000_u64, part in 0..1_000_000_u64, tokens in 0..1_000_000_u64) {
            let text = format!("{dollars}.{part:06}");
            let pico = picodollars(&text).unwrap();
            prop_assert_eq!(pico, dollars * 1_000_000 + part);
            let exact = u128::from(pico) * u128::from(tokens);
            let nano = u128::from(nanodollars(&[(tokens, pico)]));
            prop_assert!(nano * 1000 >= exact && nano * 1000 < exact + 1000);
        }
    }
}
