//! The ScaledObject of KEDA, from version 3.20260609.65038 of `kcr_keda_sh`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScaledObject {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: ScaledObjectSpec,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObjectSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    advanced: Option<ScaledObjectAdvanced>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cooldown_period: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<ScaledObjectFallback>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_replica_count: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_cooldown_period: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_replica_count: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_replica_count: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    polling_interval: Option<i32>,
    scale_target_ref: ScaledObjectScaleTargetRef,
    triggers: Vec<ScaledObjectTriggers>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObjectAdvanced {
    #[serde(skip_serializing_if = "Option::is_none")]
    horizontal_pod_autoscaler_config: Option<ScaledObjectAdvancedHorizontalPodAutoscalerConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restore_to_original_replica_count: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scaling_modifiers: Option<ScaledObjectAdvancedScalingModifiers>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObjectAdvancedHorizontalPodAutoscalerConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    behavior: Option<ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehavior>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehavior {
    #[serde(skip_serializing_if = "Option::is_none")]
    scale_down: Option<ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorRules>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scale_up: Option<ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorRules>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorRules {
    #[serde(skip_serializing_if = "Option::is_none")]
    policies: Option<Vec<ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorPolicies>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    select_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stabilization_window_seconds: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tolerance: Option<IntOrString>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObjectAdvancedHorizontalPodAutoscalerConfigBehaviorPolicies {
    period_seconds: i32,
    r#type: String,
    value: i32,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObjectAdvancedScalingModifiers {
    #[serde(skip_serializing_if = "Option::is_none")]
    activation_target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    formula: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_type: Option<ScaledObjectAdvancedScalingModifiersMetricType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

#[derive(Deserialize, Serialize)]
enum ScaledObjectAdvancedScalingModifiersMetricType {
    AverageValue,
    Value,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObjectFallback {
    #[serde(skip_serializing_if = "Option::is_none")]
    behavior: Option<ScaledObjectFallbackBehavior>,
    failure_threshold: i32,
    replicas: i32,
}

#[derive(Deserialize, Serialize)]
enum ScaledObjectFallbackBehavior {
    #[serde(rename = "static")]
    Static,
    #[serde(rename = "currentReplicas")]
    CurrentReplicas,
    #[serde(rename = "currentReplicasIfHigher")]
    CurrentReplicasIfHigher,
    #[serde(rename = "currentReplicasIfLower")]
    CurrentReplicasIfLower,
    #[serde(rename = "scalingModifiers")]
    ScalingModifiers,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObjectScaleTargetRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    env_source_container_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    name: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObjectTriggers {
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication_ref: Option<ScaledObjectTriggersAuthenticationRef>,
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    use_cached_metrics: Option<bool>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaledObjectTriggersAuthenticationRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<ScaledObjectTriggersAuthenticationRefKind>,
    name: String,
}

#[derive(Deserialize, Serialize)]
enum ScaledObjectTriggersAuthenticationRefKind {
    TriggerAuthentication,
    ClusterTriggerAuthentication,
}
