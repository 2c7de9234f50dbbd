//! Decides which models a request is sent to, one after the other.

use super::served::Served;
use crate::routes::Routes;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use types::ids::ResourceId;
use types::kinds::model::{ModelFailure, ModelFallback, ModelRouting};

/// The models still to try. Each model is tried once, so that cycles end.
#[derive(Clone)]
pub(crate) struct Plan<'r> {
    routes: &'r Routes,
    workspace: &'r str,
    /// Where the request falls among the weights of targets: the same for all requests of one
    /// conversation.
    point: u64,
    seen: Vec<ResourceId>,
    waiting: VecDeque<Step>,
}

/// A model with a provider, and the models without one that led to it from the one that was asked
/// for.
#[derive(Clone)]
pub(crate) struct Reached {
    pub(crate) model: Arc<Served>,
    pub(crate) through: Vec<Arc<Served>>,
}

#[derive(Clone)]
struct Step {
    reached: Reached,
    /// The failures of the model before after which this one is asked. `None` means all but those
    /// that are the caller's fault.
    on: Option<Vec<ModelFailure>>,
}

impl<'r> Plan<'r> {
    pub(crate) fn new(routes: &'r Routes, asked: &'r Arc<Served>, point: u64) -> Self {
        let reached = Reached { model: Arc::clone(asked), through: Vec::new() };
        let first = Step { reached, on: None };
        Self {
            routes,
            workspace: &asked.route.workspace_name,
            point,
            seen: Vec::new(),
            waiting: VecDeque::from([first]),
        }
    }

    /// Returns the next model with a provider, after this failure of the one before.
    pub(crate) fn next(&mut self, failure: Option<ModelFailure>) -> Option<Reached> {
        while let Some(Step { reached, on }) = self.waiting.pop_front() {
            let route = &reached.model.route;
            if failure.is_some_and(|failure| !helps(on.as_deref(), failure)) {
                continue;
            }
            if self.seen.contains(&route.id) || route.off.is_some() {
                continue;
            }
            self.seen.push(route.id.clone());
            self.unfold(&reached, on.as_deref());
            if route.provider.is_some() {
                return Some(reached);
            }
        }
        None
    }

    /// Returns whether there is another model to ask after this failure.
    pub(crate) fn has_next(&self, failure: ModelFailure) -> bool {
        self.clone().next(Some(failure)).is_some()
    }

    /// Puts what a model leads to in front of the models that wait.
    fn unfold(&mut self, from: &Reached, on: Option<&[ModelFailure]>) {
        let ModelRouting { targets, fallbacks, .. } = &from.model.route.routing;
        let mut through = from.through.clone();
        // The model that was asked for counts in any case.
        if from.model.route.provider.is_none() && self.seen.len() > 1 {
            through.push(Arc::clone(&from.model));
        }
        let reached = |model| Reached { model, through: through.clone() };
        let mut steps = Vec::new();
        let mut targets: Vec<(f64, Arc<Served>)> = targets
            .iter()
            .flatten()
            .filter_map(|target| {
                let weight = target.weight.unwrap_or(1);
                let found = self.routes.model(self.workspace, &target.model)?;
                (weight > 0).then(|| (score(self.point, &target.model, weight), found))
            })
            .collect();
        targets.sort_by(|(a, _), (b, _)| b.partial_cmp(a).unwrap_or(Ordering::Equal));
        // The first target stands for the model itself; the others are asked if it fails.
        let targets = targets.into_iter().enumerate();
        steps.extend(targets.map(|(number, (_, model))| Step {
            reached: reached(model),
            on: on.filter(|_| number == 0).map(<[_]>::to_vec),
        }));
        let fallbacks = fallbacks.iter().flatten().filter_map(|fallback| {
            let ModelFallback { model, on } = fallback;
            let model = self.routes.model(self.workspace, model)?;
            Some(Step { reached: reached(model), on: on.clone() })
        });
        steps.extend(fallbacks);
        for step in steps.into_iter().rev() {
            self.waiting.push_front(step);
        }
    }
}

/// Returns whether another model may be asked after a failure.
fn helps(on: Option<&[ModelFailure]>, failure: ModelFailure) -> bool {
    match on {
        Some(on) => on.contains(&failure),
        None => !matches!(
            failure,
            ModelFailure::BadRequest | ModelFailure::ContextLength | ModelFailure::ContentFilter
        ),
    }
}

/// Scores a target so that it gets the highest score with the probability of its weight. When one
/// target is left out, the order of the others stays, so a conversation moves only if its own
/// target cannot answer.
#[expect(clippy::cast_precision_loss, reason = "53 bits of chance are enough")]
fn score(point: u64, name: &str, weight: i64) -> f64 {
    let mut mixed = point;
    for byte in name.bytes() {
        mixed = mix(mixed ^ u64::from(byte));
    }
    let chance = ((mix(mixed) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    chance.ln() / weight as f64
}

/// Spreads neighbouring numbers over the whole range (splitmix64).
pub(crate) const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::served::tests::route;
    use types::edge::RouteChange;
    use types::kinds::model::ModelTarget;
    use types::models::ModelRoute;

    fn virtual_model(name: &str, targets: &[(&str, i64)], fallbacks: &[&str]) -> ModelRoute {
        let target = |(model, weight): &(&str, i64)| ModelTarget {
            model: (*model).into(),
            weight: Some(*weight),
        };
        let fallback = |model: &&str| ModelFallback { model: (*model).into(), on: None };
        let mut route = route(name, None);
        route.routing.targets = Some(targets.iter().map(target).collect());
        route.routing.fallbacks = Some(fallbacks.iter().map(fallback).collect());
        route
    }

    fn routes(all: Vec<ModelRoute>) -> Routes {
        let routes = Routes::default();
        all.into_iter().for_each(|route| routes.apply(RouteChange::Model(Box::new(route))));
        routes
    }

    fn order(routes: &Routes, name: &str, point: u64, failure: ModelFailure) -> Vec<String> {
        let asked = routes.model("acme", name).unwrap();
        let mut plan = Plan::new(routes, &asked, point);
        let mut order = Vec::new();
        let mut next = plan.next(None);
        while let Some(Reached { model, through }) = next {
            let through: String = through.iter().map(|it| format!("{}/", it.route.name)).collect();
            order.push(through + &model.route.name);
            next = plan.next(Some(failure));
        }
        order
    }

    #[test]
    fn circles_end_and_each_model_is_tried_once() {
        let mut a = route("a", Some("http://a"));
        a.routing.fallbacks = Some(vec![ModelFallback { model: "v".into(), on: None }]);
        let b = route("b", Some("http://b"));
        let v = virtual_model("v", &[("a", 1), ("v", 1), ("gone", 1)], &["b", "a"]);
        let routes = routes(vec![a, b, v]);
        assert_eq!(order(&routes, "v", 1, ModelFailure::Timeout), ["a", "b"]);
        assert_eq!(order(&routes, "a", 1, ModelFailure::Timeout), ["a", "v/b"]);
        assert_eq!(order(&routes, "a", 1, ModelFailure::BadRequest), ["a"]);
    }

    #[test]
    fn it_is_known_which_models_led_to_one() {
        let mut off = virtual_model("off", &[("c", 1)], &["c"]);
        off.off = Some("it is disabled".into());
        let middle = virtual_model("m", &[("n", 1)], &["off", "b"]);
        let all = [("a", "x"), ("b", "x"), ("c", "x")].map(|(name, at)| route(name, Some(at)));
        let others = [virtual_model("v", &[("m", 1)], &["b"]), middle, off];
        let n = virtual_model("n", &[("a", 1)], &[]);
        let routes = routes(all.into_iter().chain(others).chain([n]).collect());
        assert_eq!(order(&routes, "v", 0, ModelFailure::Timeout), ["m/n/a", "m/b"]);
        let asked = routes.model("acme", "v").unwrap();
        let mut plan = Plan::new(&routes, &asked, 0);
        let _ = plan.next(None);
        assert!(plan.has_next(ModelFailure::Timeout));
        let _ = plan.next(Some(ModelFailure::Timeout));
        assert!(!plan.has_next(ModelFailure::Timeout));
    }

    #[test]
    fn a_fallback_is_for_the_failures_that_it_names() {
        let mut a = route("a", Some("http://a"));
        let on = Some(vec![ModelFailure::ContextLength]);
        a.routing.fallbacks = Some(vec![ModelFallback { model: "b".into(), on }]);
        let routes = routes(vec![a, route("b", Some("http://b"))]);
        assert_eq!(order(&routes, "a", 0, ModelFailure::ContextLength), ["a", "b"]);
        assert_eq!(order(&routes, "a", 0, ModelFailure::ServerError), ["a"]);
    }

    #[test]
    fn targets_share_by_weight_and_conversations_stay() {
        let all = [("a", 3), ("b", 1), ("c", 0)];
        let mut models: Vec<ModelRoute> =
            all.iter().map(|(name, _)| route(name, Some("http://x"))).collect();
        models.push(virtual_model("v", &all, &[]));
        let routes = routes(models);
        let first = |point| order(&routes, "v", point, ModelFailure::Timeout).swap_remove(0);
        let to_a = (0..4000).filter(|point| first(mix(*point)) == "a").count();
        assert!((2850..3150).contains(&to_a), "{to_a}");
        assert!((0..4000).all(|point| first(point) != "c"));
        assert!((0..100).all(|point| first(point) == first(point)));
    }
}
