//! What each tool does: arguments in, a call to the library, an answer in words and as data.

use moongate_core::{
    arguments::Whole,
    builtin::{ToolError, ToolOutput},
    html,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    error::Error,
    library::{Library, Listing, Place, Window},
    record::{Draft, Record, Shown, Step},
    show,
    template::{self, Values},
};

/// Cards on one page a person looks at.
const CARDS: usize = 10;
const MAX_PAGE: i64 = 1000;

#[derive(Deserialize)]
pub(crate) struct Named {
    id: String,
}

#[derive(Deserialize)]
pub(crate) struct Select {
    id: String,
    #[serde(default)]
    inputs: Values,
}

#[derive(Deserialize)]
pub(crate) struct Update {
    id: String,
    #[serde(default)]
    playbook: Draft,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pages {
    page: Option<Whole>,
    page_size: Option<Whole>,
}

pub(crate) async fn create(
    library: &Library<'_>,
    draft: Draft,
    id: impl Fn() -> String,
    now: &str,
) -> Result<ToolOutput, ToolError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Created<'a> {
        success: bool,
        id: &'a str,
        name: &'a str,
        agent_id: &'a str,
        steps: &'a [Step],
        playbook: Shown<'a>,
    }
    let record = library.create(|| Record::new(id(), library.owner(), &draft, now)).await?;
    let created = Created {
        success: true,
        id: &record.id,
        name: &record.name,
        agent_id: &record.agent_id,
        steps: &record.workflow,
        playbook: Shown::from(&record),
    };
    Ok(ToolOutput::new(format!("Playbook created: {} (id {})", record.name, record.id), created))
}

pub(crate) async fn select(library: &Library<'_>, args: Select) -> Result<ToolOutput, ToolError> {
    #[derive(Serialize)]
    struct Chosen<'a> {
        selected: &'a str,
        playbook: Shown<'a>,
        inputs: &'a Values,
        prompt: &'a str,
    }
    let record = library.get(&args.id).await?;
    let values = template::resolve(&record.inputs, &args.inputs)?;
    let prompt = show::instructions(&record, &values);
    let selected =
        Chosen { selected: &record.id, playbook: Shown::from(&record), inputs: &values, prompt: &prompt };
    Ok(ToolOutput::new(&prompt, selected))
}

pub(crate) async fn get(library: &Library<'_>, args: Named) -> Result<ToolOutput, ToolError> {
    let record = library.get(&args.id).await?;
    Ok(whole(&show::detail(&record), &record))
}

pub(crate) async fn update(library: &Library<'_>, args: Update, now: &str) -> Result<ToolOutput, ToolError> {
    let record = library.update(&args.id, |record| record.merge(&args.playbook, now)).await?;
    Ok(whole(&format!("Playbook updated.\n{}", show::detail(&record)), &record))
}

pub(crate) async fn delete(library: &Library<'_>, args: Named) -> Result<ToolOutput, ToolError> {
    library.delete(&args.id).await?;
    Ok(ToolOutput::new(format!("Playbook deleted: {}", args.id), json!({"success": true, "id": args.id})))
}

pub(crate) async fn list(library: &Library<'_>, args: Pages) -> Result<ToolOutput, ToolError> {
    let listing = library.list(args.window(None)?).await?;
    Ok(listed(&listing))
}

pub(crate) async fn show(library: &Library<'_>, args: Pages) -> Result<ToolOutput, ToolError> {
    let listing = library.list(args.window(Some(CARDS))?).await?;
    let uri = format!("ui://playbooks/{}", listing.place.page);
    Ok(listed(&listing).with_block(html::resource(&uri, &show::page(&listing))))
}

fn whole(text: &str, record: &Record) -> ToolOutput {
    #[derive(Serialize)]
    struct Whole<'a> {
        success: bool,
        playbook: Shown<'a>,
    }
    ToolOutput::new(text, Whole { success: true, playbook: Shown::from(record) })
}

fn listed(listing: &Listing) -> ToolOutput {
    #[derive(Serialize)]
    struct Item<'a> {
        id: &'a str,
        name: &'a str,
    }
    #[derive(Serialize)]
    struct Page<'a> {
        #[serde(flatten)]
        place: Place,
        items: Vec<Item<'a>>,
    }
    #[derive(Serialize)]
    struct Listed<'a> {
        playbooks: Vec<Shown<'a>>,
        page: Page<'a>,
    }
    let items = listing.records.iter().map(|record| Item { id: &record.id, name: &record.name }).collect();
    let playbooks = listing.records.iter().map(Shown::from).collect();
    ToolOutput::new(show::list(listing), Listed { playbooks, page: Page { place: listing.place, items } })
}

impl Pages {
    /// Which rows are meant; `size` is that of a caller who does not say.
    fn window(&self, size: Option<usize>) -> Result<Window, Error> {
        let page = self.page.map_or(Some(1), |page| usize::try_from(page.0).ok().filter(|&page| page > 0));
        let size = match self.page_size {
            None => size,
            Some(Whole(-1)) => None,
            Some(Whole(size @ 1..=MAX_PAGE)) => usize::try_from(size).ok(),
            Some(_) => return Err(Error::PageSize),
        };
        Ok(Window { page: page.ok_or(Error::Missing("page"))?, size })
    }
}
