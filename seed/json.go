package seed

import (
	"encoding/json"

	"go.etcd.io/etcd/client/pkg/v3/types"
)

// In JSON, IDs are strings in etcd's text form, lower hex without padding, as
// etcdctl takes them; a number of 64 bits does not survive every reader.

// MarshalJSON is the member with its ID as text.
func (m Member) MarshalJSON() ([]byte, error) {
	type plain Member
	return json.Marshal(struct {
		ID string `json:"id"`
		plain
	}{m.ID.String(), plain(m)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *Member) UnmarshalJSON(data []byte) error {
	type plain Member
	text := struct {
		*plain
		ID string `json:"id"`
	}{plain: (*plain)(m)}
	err := json.Unmarshal(data, &text)
	if err != nil {
		return err
	}
	m.ID, err = types.IDFromString(text.ID)
	return err
}

// MarshalJSON is the state with its IDs as text.
func (s State) MarshalJSON() ([]byte, error) {
	type plain State
	text := struct {
		plain
		MemberID  string   `json:"memberID,omitempty"`
		ClusterID string   `json:"clusterID,omitempty"`
		Removed   []string `json:"removed,omitempty"`
		Withdrawn []string `json:"withdrawn,omitempty"`
	}{plain: plain(s), MemberID: idText(s.MemberID), ClusterID: idText(s.ClusterID)}
	for _, id := range s.Removed {
		text.Removed = append(text.Removed, id.String())
	}
	for _, id := range s.Withdrawn {
		text.Withdrawn = append(text.Withdrawn, id.String())
	}
	return json.Marshal(text)
}

// idText is empty for the ID that no member has.
func idText(id types.ID) string {
	if id == 0 {
		return ""
	}
	return id.String()
}

// MarshalJSON is the plan with its IDs as text.
func (p Plan) MarshalJSON() ([]byte, error) {
	type plain Plan
	return json.Marshal(struct {
		ClusterID string `json:"clusterID"`
		MemberID  string `json:"memberID"`
		plain
	}{p.ClusterID.String(), p.MemberID.String(), plain(p)})
}
