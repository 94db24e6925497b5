//! The Certificate of cert-manager, from version 3.20260606.152110 of `kcr_cert_manager_io`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Certificate {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: CertificateSpec,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    additional_output_formats: Option<Vec<CertificateAdditionalOutputFormats>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    common_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns_names: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email_addresses: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encode_usages_in_request: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_addresses: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "isCA")]
    is_ca: Option<bool>,
    issuer_ref: CertificateIssuerRef,
    #[serde(skip_serializing_if = "Option::is_none")]
    keystores: Option<CertificateKeystores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    literal_subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_constraints: Option<CertificateNameConstraints>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_names: Option<Vec<CertificateOtherNames>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_key: Option<CertificatePrivateKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_before_percentage: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renewal: Option<CertificateRenewal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision_history_limit: Option<i32>,
    secret_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_template: Option<CertificateSecretTemplate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature_algorithm: Option<CertificateSignatureAlgorithm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<CertificateSubject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uris: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usages: Option<Vec<String>>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateAdditionalOutputFormats {
    r#type: CertificateAdditionalOutputFormatsType,
}

#[derive(Deserialize, Serialize)]
enum CertificateAdditionalOutputFormatsType {
    #[serde(rename = "DER")]
    Der,
    #[serde(rename = "CombinedPEM")]
    CombinedPem,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateIssuerRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    name: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateKeystores {
    #[serde(skip_serializing_if = "Option::is_none")]
    jks: Option<CertificateKeystoresJks>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pkcs12: Option<CertificateKeystoresPkcs12>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateKeystoresJks {
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    create: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password_secret_ref: Option<CertificateKeystoresPasswordSecretRef>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateKeystoresPasswordSecretRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    name: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateKeystoresPkcs12 {
    create: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password_secret_ref: Option<CertificateKeystoresPasswordSecretRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<CertificateKeystoresPkcs12Profile>,
}

#[derive(Deserialize, Serialize)]
enum CertificateKeystoresPkcs12Profile {
    #[serde(rename = "LegacyRC2")]
    LegacyRc2,
    #[serde(rename = "LegacyDES")]
    LegacyDes,
    Modern2023,
    Modern2026,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateNameConstraints {
    #[serde(skip_serializing_if = "Option::is_none")]
    critical: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    excluded: Option<CertificateNameConstraintsNames>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permitted: Option<CertificateNameConstraintsNames>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateNameConstraintsNames {
    #[serde(skip_serializing_if = "Option::is_none")]
    dns_domains: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email_addresses: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_ranges: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri_domains: Option<Vec<String>>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateOtherNames {
    #[serde(skip_serializing_if = "Option::is_none")]
    oid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    utf8_value: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificatePrivateKey {
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<CertificatePrivateKeyAlgorithm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<CertificatePrivateKeyEncoding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rotation_policy: Option<CertificatePrivateKeyRotationPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<i64>,
}

#[derive(Deserialize, Serialize)]
enum CertificatePrivateKeyAlgorithm {
    #[serde(rename = "RSA")]
    Rsa,
    #[serde(rename = "ECDSA")]
    Ecdsa,
    Ed25519,
}

#[derive(Deserialize, Serialize)]
enum CertificatePrivateKeyEncoding {
    #[serde(rename = "PKCS1")]
    Pkcs1,
    #[serde(rename = "PKCS8")]
    Pkcs8,
}

#[derive(Deserialize, Serialize)]
enum CertificatePrivateKeyRotationPolicy {
    Never,
    Always,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateRenewal {
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<CertificateRenewalPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    windows: Option<Vec<CertificateRenewalWindows>>,
}

#[derive(Deserialize, Serialize)]
enum CertificateRenewalPolicy {
    RenewBefore,
    Disabled,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateRenewalWindows {
    cron: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    window_duration: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateSecretTemplate {
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Serialize)]
enum CertificateSignatureAlgorithm {
    #[serde(rename = "SHA256WithRSA")]
    Sha256WithRsa,
    #[serde(rename = "SHA384WithRSA")]
    Sha384WithRsa,
    #[serde(rename = "SHA512WithRSA")]
    Sha512WithRsa,
    #[serde(rename = "ECDSAWithSHA256")]
    EcdsaWithSha256,
    #[serde(rename = "ECDSAWithSHA384")]
    EcdsaWithSha384,
    #[serde(rename = "ECDSAWithSHA512")]
    EcdsaWithSha512,
    PureEd25519,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateSubject {
    #[serde(skip_serializing_if = "Option::is_none")]
    countries: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    localities: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    organizational_units: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    organizations: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    postal_codes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provinces: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serial_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    street_addresses: Option<Vec<String>>,
}
