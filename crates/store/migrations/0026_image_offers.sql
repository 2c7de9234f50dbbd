-- An offer of an image is looked for by the workspace that it is made to, among the offers of all workspaces. Its row has that
-- workspace's id in place of an external id. Offers from before this step name the workspace in their wish.
UPDATE resources SET external_id = (
    SELECT target.id FROM workspaces target
    WHERE resources.wish LIKE '%"targetWorkspace":"' || target.name || '"%'
      AND resources.wish LIKE '%"targetAccountId":"' || target.account_id || '"%'
      AND target.created_at <= resources.created_at
    LIMIT 1
) WHERE kind = 'image-share';
CREATE INDEX resources_by_offer ON resources (external_id) WHERE kind = 'image-share';
