//! Servers whose lists are too long, too heavy, or change.

use anyhow::{Context as _, Result};
use moongate_test_chaos::{EVERYWHERE, Scene, eventually, play, text_of};
use moongate_test_support::Outcome;
use serde_json::{Value, json};

/// The names of all tools that one client is shown, page by page.
async fn names(mut page: impl AsyncFnMut(&Value) -> Result<Outcome>) -> Result<Vec<String>> {
    let (mut names, mut params) = (Vec::new(), json!({}));
    loop {
        let result = page(&params).await?.result()?;
        let tools = result.get("tools").and_then(Value::as_array).context("no tools")?;
        names.extend(tools.iter().filter_map(|tool| Some(tool.get("name")?.as_str()?.to_owned())));
        match result.get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return Ok(names),
        }
    }
}

/// The names of all tools, which both clients agree about.
async fn listed(scene: &Scene) -> Result<Vec<String>> {
    let legacy = names(async |params| scene.legacy.request("tools/list", params).await).await?;
    let modern = names(async |params| scene.modern.request("tools/list", params).await).await?;
    assert_eq!(legacy, modern);
    Ok(legacy)
}

#[tokio::test]
async fn ten_thousand_tools_are_listed_and_called() -> Result<()> {
    play(&EVERYWHERE, &["tools=10000", "paginate=1000"], "", async |scene| {
        let all = scene.while_others_answer(listed(scene)).await??;
        let generated = all.iter().filter(|name| name.starts_with("bad__generated_"));
        assert_eq!(generated.count(), 10_000);
        assert!(all.iter().any(|name| name == "good__echo"));
        for answer in scene.call("generated_10000", &json!({})).await? {
            assert_eq!(text_of(&answer), "generated_10000");
        }
        let shown = scene.doctor_shows("up", "").await?;
        assert!(shown["offers"][0].as_u64() > Some(10_000), "{}", shown["offers"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_tool_with_a_schema_of_five_megabytes_is_left_out_alone() -> Result<()> {
    play(&EVERYWHERE, &["schema-bytes=5242880"], "", async |scene| {
        let all = listed(scene).await?;
        assert!(!all.iter().any(|name| name.contains("generated")), "{all:?}");
        assert!(all.iter().any(|name| name == "bad__echo"));
        scene.gateway.logged("not offered: tool generated_1: its definition of").await?;
        let shown = scene.doctor_shows("up", "").await?;
        let left_out = shown["left_out"].as_array().context("a list")?;
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert!(left_out[0].as_str().is_some_and(|text| text.contains("generated_1")), "{left_out:?}");
        scene.echoes().await
    })
    .await
}

#[tokio::test]
async fn tools_that_change_under_us_are_announced_and_callable() -> Result<()> {
    play(&EVERYWHERE, &[], "", async |scene| {
        let mut legacy = scene.legacy.listen(None).await?;
        let mut modern = scene.modern.listen(&json!({"toolsListChanged": true})).await?;
        scene.echoes().await?;
        let [added, other] = scene.call("change_tools", &json!({})).await?;
        let mut added = [text_of(&added).to_owned(), text_of(&other).to_owned()];
        added.sort();
        // A server that all clients of one kind share counts for both; one that tells clients apart, for each.
        assert!(added[0] == "added_1" && added[1].starts_with("added_"), "{added:?}");
        let changed = |message: &Value| message["method"] == "notifications/tools/list_changed";
        legacy.message_where(changed).await?;
        modern.message_where(changed).await?;
        eventually("the new tool to be listed", async || {
            let all = listed(scene).await?;
            Ok(all.iter().any(|name| name == "bad__added_1").then_some(()))
        })
        .await?;
        for answer in scene.call("added_1", &json!({})).await? {
            assert_eq!(text_of(&answer), "added_1");
        }
        let shown = scene.doctor_shows("up", "").await?;
        assert!(shown["tools"].as_array().is_some_and(|tools| tools.contains(&json!("added_1"))), "{shown}");
        Ok(())
    })
    .await
}
