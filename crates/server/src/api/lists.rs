//! Small lists: templates and profiles.

use belljar_api::v1;
use belljar_policy::network::PROFILES;

use super::Api;
use crate::action;
use crate::call::Call;
use crate::problem::Result;

impl Api {
    pub async fn list_templates(
        &self,
        call: &Call,
        _request: v1::ListTemplatesRequest,
    ) -> Result<v1::ListTemplatesResponse> {
        let work = async {
            let templates = self.engine(call).templates().await?.into_iter();
            Ok(v1::ListTemplatesResponse {
                templates: templates
                    .map(|template| v1::Template {
                        name: template.name,
                        description: template.description,
                        available: template.available,
                        detail: String::new(),
                    })
                    .collect(),
            })
        };
        self.act(call, action::LIST_TEMPLATES, "", work).await
    }

    pub async fn list_profiles(
        &self,
        call: &Call,
        _request: v1::ListProfilesRequest,
    ) -> Result<v1::ListProfilesResponse> {
        let work = async {
            let profiles = PROFILES.iter().map(|profile| v1::Profile {
                name: profile.name.to_owned(),
                description: profile.description.to_owned(),
                mode: profile.mode.as_str().to_owned(),
                allow: profile.allow.iter().map(|host| (*host).to_owned()).collect(),
            });
            Ok(v1::ListProfilesResponse { profiles: profiles.collect() })
        };
        self.act(call, action::LIST_PROFILES, "", work).await
    }
}
