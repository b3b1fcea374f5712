package prometheus

import (
	"bytes"
	"fmt"
	"regexp"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"
)

// durations matches the durations in an expression: ranges, offsets and steps of subqueries, with the text before
// them.
var durations = regexp.MustCompile(`([\[:]|\boffset )([0-9][0-9a-z]*)\b`)

// ScaleAlertTimes shortens the durations of each alert in PrometheusRules, so that the alert's longest duration becomes
// equal to `longest`. It divides the alert's "for" duration, and the ranges and offsets of its expression, by the same
// factor. Everything else stays unchanged, including recording rules. It returns the factor of each alert.
func ScaleAlertTimes(manifests []byte, longest time.Duration) (_ []byte, factors map[string]float64, err error) {
	documents, factors := bytes.Split(manifests, []byte("\n---\n")), map[string]float64{}
	for i, document := range documents {
		rule := &monitoringv1.PrometheusRule{}
		if err = yaml.Unmarshal(document, rule); err != nil {
			return nil, nil, fmt.Errorf("reading a rule: %w", err)
		}
		if rule.Kind != monitoringv1.PrometheusRuleKind {
			continue
		}
		for _, group := range rule.Spec.Groups {
			for j := range group.Rules {
				if group.Rules[j].Alert == "" {
					continue
				}
				if factors[group.Rules[j].Alert], err = scale(&group.Rules[j], longest); err != nil {
					return nil, nil, fmt.Errorf("alert %s: %w", group.Rules[j].Alert, err)
				}
			}
		}
		if documents[i], err = yaml.Marshal(rule); err != nil {
			return nil, nil, fmt.Errorf("writing a rule: %w", err)
		}
	}
	return bytes.Join(documents, []byte("\n---\n")), factors, nil
}

// scale divides the durations of one alert.
func scale(rule *monitoringv1.Rule, longest time.Duration) (factor float64, err error) {
	all := []string{}
	if rule.For != nil {
		all = append(all, string(*rule.For))
	}
	expression := rule.Expr.String()
	for _, found := range durations.FindAllStringSubmatch(expression, -1) {
		all = append(all, found[2])
	}
	var most time.Duration
	for _, text := range all {
		d, err := model.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("reading a duration: %w", err)
		}
		most = max(most, time.Duration(d))
	}
	if most <= longest {
		return 0, fmt.Errorf("the longest duration is %s", most)
	}
	factor = float64(most) / float64(longest)
	divide := func(text string) string {
		d, _ := model.ParseDuration(text) // it was parsed above
		return model.Duration((time.Duration(float64(d) / factor)).Round(time.Millisecond)).String()
	}
	if rule.For != nil {
		hold := monitoringv1.Duration(divide(string(*rule.For)))
		rule.For = &hold
	}
	rule.Expr.StrVal = durations.ReplaceAllStringFunc(expression, func(text string) string {
		found := durations.FindStringSubmatch(text)
		return found[1] + divide(found[2])
	})
	return factor, nil
}
