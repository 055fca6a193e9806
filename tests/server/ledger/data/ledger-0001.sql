BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	actor VARCHAR(200) NOT NULL, 
	action VARCHAR(40) NOT NULL, 
	population VARCHAR(100), 
	run VARCHAR(40), 
	round INTEGER, 
	event VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id), 
	CONSTRAINT uq_audit_event UNIQUE (event)
);
INSERT INTO "audit" VALUES(1,1.79523096282802176477e+09,'officer','population.create','people',NULL,NULL,'ae8303852e08393890466dba9baed283','{"adjacency":"zero_out","delta":1e-06,"epsilon":4.0,"salt":"5bafe8cf76f6a923aa82f639b57eebf9487c508ff686e3e3de95a69eea070a9a","simulated":false,"unit":"user"}','3650e38432df3cba4764646c5dcc4d561aff1e60b45300a2472ee4f7f1d0f03c','207049fde71371cb94488cebd4870531d8921fb9fb0552fa7d46026dd1757fe7');
INSERT INTO "audit" VALUES(2,1.7952309628564050198e+09,'officer','population.raise','people',NULL,NULL,'a025a008c3ce1e42fd0470621d7a7f94','{"delta":1e-06,"epsilon":5.0,"reason":"agreed on 3 May"}','207049fde71371cb94488cebd4870531d8921fb9fb0552fa7d46026dd1757fe7','b8d26225db0f3c4884925bd75d15ff7f9b3f2d7b4a354f5c8f9c8ad9db0dadf2');
INSERT INTO "audit" VALUES(3,1.79523096288824677464e+09,'officer','population.create','others',NULL,NULL,'e1a03d2394826db3fe6b7c0fa372ea9c','{"adjacency":"add_remove","delta":1e-06,"epsilon":1.0,"salt":"54683fff5c5fe05ee9a7d214e2d2fea2a044e855261be9d7dec3fd07538d1b40","simulated":false,"unit":"user"}','b8d26225db0f3c4884925bd75d15ff7f9b3f2d7b4a354f5c8f9c8ad9db0dadf2','937f8cdce4db23e40cf660bbbb011142f39d11c0611252883202dd2415094d07');
INSERT INTO "audit" VALUES(4,1.79523096318236351012e+09,'officer','population.close','others',NULL,NULL,'b473a64c32662180fc53662e3c040b54','{}','937f8cdce4db23e40cf660bbbb011142f39d11c0611252883202dd2415094d07','c1f642904e35e7b35eab0928449a904fa5a1d6abc59159db4aa64e0cd56ab870');
INSERT INTO "audit" VALUES(5,1.79523096320908951764e+09,'officer','token.create',NULL,NULL,NULL,'11c4c5d6e87e7a6c346085c0849ce64e','{"digest":"72280eec90301af62114c134fc20c3cfefdff656a1380ca4e2b117edfbe5776f","expires_at":null,"id":"64eb02d9784b","name":"page","scopes":["read"]}','c1f642904e35e7b35eab0928449a904fa5a1d6abc59159db4aa64e0cd56ab870','74491b718678dd95d74c37fd69c0c98d8e879aa49fb2d4d9b2436ba6834bce6f');
INSERT INTO "audit" VALUES(6,1.79523096322418642041e+09,'officer','token.create',NULL,NULL,NULL,'784a72b5d0cad56f0c29ecfc65998d6d','{"digest":"4f31a5cfe0a15bfd6de3a0f3c49e4310e8b0b717c9bc44bb2134faf49ab54727","expires_at":null,"id":"faff616f3ea8","name":"office","scopes":["read","admin"]}','74491b718678dd95d74c37fd69c0c98d8e879aa49fb2d4d9b2436ba6834bce6f','7f08fddd327d7d4891a9f776378bc0379ba3ab3c25a90e53ada161227ab48e57');
INSERT INTO "audit" VALUES(7,1.79523096324030137062e+09,'officer','token.revoke',NULL,NULL,NULL,'b1d97178ec3735d3f6bd84ee3842ed71','{"id":"64eb02d9784b"}','7f08fddd327d7d4891a9f776378bc0379ba3ab3c25a90e53ada161227ab48e57','3e85e6dafa919a01c2405f05ff9590adc4fe4ba057b3d14d86458af4adea3867');
INSERT INTO "audit" VALUES(8,1.79523096325654578212e+09,'test','run.start','people','20261121-06c54575',NULL,'3de2e2f0e2e4519f1385e1f9f7c7debd','{"key_commitment":"9d5d3e0555e87da18501a56bf77f6f4ef4377d74766521d704d7045002d1ee76","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","rounds":3,"trust_node_ids":false}','3e85e6dafa919a01c2405f05ff9590adc4fe4ba057b3d14d86458af4adea3867','01ecd2a39b30bd2850c868ce6ef6281629a1524d866ff92985d2164dcc08880c');
INSERT INTO "audit" VALUES(9,1.79523096328788685799e+09,'run 20261121-06c54575','users.register','people','20261121-06c54575',NULL,'40697fd027f9928e202294effa17769b','{"count":40,"first":0,"hashes":"9bbb954582f0060c2875be00bb3168d654313090f5cce63c82734653fa6d924d"}','01ecd2a39b30bd2850c868ce6ef6281629a1524d866ff92985d2164dcc08880c','85c3451687398b2521629c8225cbe91eb019d09769bcb46145c727eac5b55ac4');
INSERT INTO "audit" VALUES(10,1.79523096331269884111e+09,'run 20261121-06c54575','round.open','people','20261121-06c54575',0,'20ccb13c6674c1bf29b89d590eb25e22','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','85c3451687398b2521629c8225cbe91eb019d09769bcb46145c727eac5b55ac4','9f0b6cc35398d7191d524b5baaf25e285c821c13f4ae0041ae36f92a49cdf3a0');
INSERT INTO "audit" VALUES(11,1.79523096333836579318e+09,'run 20261121-06c54575','round.commit','people','20261121-06c54575',0,'4798738d702145e167d60f43ca63f9cb','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','9f0b6cc35398d7191d524b5baaf25e285c821c13f4ae0041ae36f92a49cdf3a0','3ecb5be2abd6096e195f25d3e441318293d8d46c37dc5d4bcf63d4c3467c1ab7');
INSERT INTO "audit" VALUES(12,1.79523096336457014081e+09,'run 20261121-06c54575','round.open','people','20261121-06c54575',1,'9bec1668f080d0c1146e5b29ce41f276','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','3ecb5be2abd6096e195f25d3e441318293d8d46c37dc5d4bcf63d4c3467c1ab7','848f6fe20d7f330500a5ec1f1e2a0386e420b09a33b7511d1197066704cf7c71');
INSERT INTO "audit" VALUES(13,1.79523096338613653184e+09,'run 20261121-06c54575','round.commit','people','20261121-06c54575',1,'6da3bd75b4739825582ed0492456d670','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','848f6fe20d7f330500a5ec1f1e2a0386e420b09a33b7511d1197066704cf7c71','1620f9ee56ce8b00e79506faedd64003fe0898c92d665378f3bcf936b16522f7');
INSERT INTO "audit" VALUES(14,1.79523096340448665621e+09,'run 20261121-06c54575','round.open','people','20261121-06c54575',2,'de127b383d67492da1d04d2dce04c31b','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','1620f9ee56ce8b00e79506faedd64003fe0898c92d665378f3bcf936b16522f7','aa97d86a06877168bbe6d2394064b746c4aa12729b7213e3aeb438180f53cb49');
INSERT INTO "audit" VALUES(15,1.79523096342072582248e+09,'run 20261121-06c54575','round.commit','people','20261121-06c54575',2,'6b1917e5bd37e6f07065c6f3c52e3171','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','aa97d86a06877168bbe6d2394064b746c4aa12729b7213e3aeb438180f53cb49','c24c8b84e659eabd0c22ae5ffeaa7d7df2928220de7c897dc50067b4b169860e');
INSERT INTO "audit" VALUES(16,1.79523096343633484835e+09,'20261121-06c54575','run.finish','people','20261121-06c54575',NULL,'2664b09d72326d6470a5abcffd97a340','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','c24c8b84e659eabd0c22ae5ffeaa7d7df2928220de7c897dc50067b4b169860e','3c05898e84bbaa91cc5bd24cbb9b99d47185e6f1b5b60faee807151ebaf9becb');
INSERT INTO "audit" VALUES(17,1.79523096345652198786e+09,'test','run.start','people','20261121-d3879bc0',NULL,'a7851d3669cf6be356ba7e755f29a45b','{"key_commitment":"0e4e8bbedfc68e0defd706200222008417602f16e6f270461927030b3f3acb38","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","rounds":3,"trust_node_ids":false}','3c05898e84bbaa91cc5bd24cbb9b99d47185e6f1b5b60faee807151ebaf9becb','cb1e17c9c5b18d8308403851bb3f4b0f0db0b3ce12ddde7c153ff608774bee46');
INSERT INTO "audit" VALUES(18,1.79523096347746610639e+09,'run 20261121-d3879bc0','round.open','people','20261121-d3879bc0',0,'82d75d1ea870722c7ddd34d832578863','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','cb1e17c9c5b18d8308403851bb3f4b0f0db0b3ce12ddde7c153ff608774bee46','7cb125227bd881b43ed9dbcbc6e576bb1dd607239045fa63425b8cb02cf0f229');
INSERT INTO "audit" VALUES(19,1.79523096349641323094e+09,'run 20261121-d3879bc0','round.void','people','20261121-d3879bc0',0,'88739c9293ed3c970f9481dcf1b7b4a2','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','7cb125227bd881b43ed9dbcbc6e576bb1dd607239045fa63425b8cb02cf0f229','c1ede292eb650b53e79063f3e634cf58c7bc6bc31f171190161adb8ac306b412');
INSERT INTO "audit" VALUES(20,1.79523096351650929452e+09,'run 20261121-d3879bc0','round.open','people','20261121-d3879bc0',0,'2c85f9522ebe34fbc52be869335592ca','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','c1ede292eb650b53e79063f3e634cf58c7bc6bc31f171190161adb8ac306b412','98cc9022a658f1f52e1f28da10f4c038e8e979a0495470abd4e9dfd8e1d54c52');
INSERT INTO "audit" VALUES(21,1.79523096353019833565e+09,'run 20261121-d3879bc0','round.commit','people','20261121-d3879bc0',0,'9da0f646979afcc563cf5724df3a154f','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','98cc9022a658f1f52e1f28da10f4c038e8e979a0495470abd4e9dfd8e1d54c52','ead68d4e4834e470d53f073b87bd8bf211ab750f5a38b574a487189203a73f60');
INSERT INTO "audit" VALUES(22,1.79523096355694437029e+09,'run 20261121-d3879bc0','users.register','people','20261121-d3879bc0',NULL,'ac2dcf14185d3b45acd1edbc9d09ead9','{"count":10,"first":40,"hashes":"4e9ca5de38f7082d8be12e681e3ddec7b359a6175734cf5e8e251bcb6267b0b4"}','ead68d4e4834e470d53f073b87bd8bf211ab750f5a38b574a487189203a73f60','6c2a86442c8bc12a4ecd156fa11d4eb1af5f702069a5c242349df5f988cc5fb7');
INSERT INTO "audit" VALUES(23,1.79523096356893372533e+09,'run 20261121-d3879bc0','round.open','people','20261121-d3879bc0',1,'3ae2d8bfb217dbc048108a0755107122','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','6c2a86442c8bc12a4ecd156fa11d4eb1af5f702069a5c242349df5f988cc5fb7','fe7091cee48fee3b53a7bcc7db6b44a64f6d78d984d1adaa767cc9f18f8de1ed');
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'b669a220b7eaa87726f39289a3262f62',23,'fe7091cee48fee3b53a7bcc7db6b44a64f6d78d984d1adaa767cc9f18f8de1ed');
CREATE TABLE leases (
	run_seq INTEGER NOT NULL, 
	holder VARCHAR(300) NOT NULL, 
	token BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	renewed_at DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (run_seq), 
	CONSTRAINT fk_leases_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "leases" VALUES(1,'',2,8,1.79523096343633484835e+09,30.0);
INSERT INTO "leases" VALUES(2,'test',1,6,1.79523096356893372533e+09,30.0);
CREATE TABLE participations (
	round_id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	users BLOB NOT NULL, 
	CONSTRAINT pk_participations PRIMARY KEY (round_id), 
	CONSTRAINT fk_participations_round_id FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT fk_participations_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_participations_run_seq_index UNIQUE (run_seq, "index")
);
INSERT INTO "participations" VALUES(1,1,0,3,X'0178DA636064040000060003');
INSERT INTO "participations" VALUES(2,1,1,2,X'0178DA6362040000070004');
INSERT INTO "participations" VALUES(3,1,2,1,X'0178DA63010000050005');
INSERT INTO "participations" VALUES(5,2,0,1,X'0178DA63050000060006');
CREATE TABLE populations (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	adjacency VARCHAR(20) NOT NULL, 
	unit VARCHAR(100) NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	salt BLOB NOT NULL, 
	users BIGINT NOT NULL, 
	settled TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'E5875B37AEE5AFAF48805E315C4858BA',50,'{"mu_squared":0.08,"sampled":[]}',1.79523096282802176477e+09,'officer');
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'8C371CD398561BCAC8095EAD160B21DF',0,'{"mu_squared":0.0,"sampled":[]}',1.79523096288824677464e+09,'officer');
CREATE TABLE rounds (
	id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	noise_row INTEGER NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	cohort BLOB, 
	cohort_size INTEGER NOT NULL, 
	reports INTEGER NOT NULL, 
	participants INTEGER NOT NULL, 
	spent TEXT, 
	epsilon DOUBLE, 
	checkpoint VARCHAR(64), 
	statistics TEXT NOT NULL, 
	rejects TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	opened_at DOUBLE NOT NULL, 
	closed_at DOUBLE, 
	CONSTRAINT pk_rounds PRIMARY KEY (id), 
	CONSTRAINT fk_rounds_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_rounds_run_seq_index_attempt UNIQUE (run_seq, "index", attempt)
);
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79523096331269884111e+09,1.79523096333836579318e+09);
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79523096336457014081e+09,1.79523096338613653184e+09);
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79523096340448665621e+09,1.79523096342072582248e+09);
INSERT INTO "rounds" VALUES(4,2,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79523096347746610639e+09,1.79523096349641323094e+09);
INSERT INTO "rounds" VALUES(5,2,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79523096351650929452e+09,1.79523096353019833565e+09);
INSERT INTO "rounds" VALUES(6,2,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79523096356893372533e+09,NULL);
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	population_id INTEGER NOT NULL, 
	"plan" TEXT NOT NULL, 
	plan_digest VARCHAR(128) NOT NULL, 
	rounds INTEGER NOT NULL, 
	planned TEXT NOT NULL, 
	spent TEXT NOT NULL, 
	noise_source VARCHAR(40) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	trust_node_ids BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	request VARCHAR(20), 
	message TEXT NOT NULL, 
	next_round INTEGER NOT NULL, 
	checkpoint VARCHAR(64), 
	started_at DOUBLE NOT NULL, 
	started_by VARCHAR(200) NOT NULL, 
	ended_at DOUBLE, 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'20261121-06c54575',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','9d5d3e0555e87da18501a56bf77f6f4ef4377d74766521d704d7045002d1ee76',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79523096325654578212e+09,'test',1.79523096343633484835e+09);
INSERT INTO "runs" VALUES(2,'20261121-d3879bc0',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','0e4e8bbedfc68e0defd706200222008417602f16e6f270461927030b3f3acb38',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79523096345652198786e+09,'test',NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('64eb02d9784b','page','72280eec90301af62114c134fc20c3cfefdff656a1380ca4e2b117edfbe5776f','read',1.79523096320908951764e+09,'officer',NULL,1.79523096324030137062e+09);
INSERT INTO "tokens" VALUES('faff616f3ea8','office','4f31a5cfe0a15bfd6de3a0f3c49e4310e8b0b717c9bc44bb2134faf49ab54727','read admin',1.79523096322418642041e+09,'officer',NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'49D0AF3C6FCFC18E71BD4B5D0F06A7964C2EEF117726ECA1B233545B5BD6C46B80567F76F25CDA1F77608B46583B63400C6AA7605E7781F504F7B531D7D1D680A632581F0A7C26596852907901A58C99820B17A135E6867545D4931F37F411E2C8C60F8236A8CA4B558455376EC740D779919FF48B624270ACA2D0FE8A2B1946EDD349EED4538FA48C5D25BAA85FDE6C861AF62F004B1F6976F39675E0E78BF2A489AA92E280F014DA9BC291C8D4BF5CABA3C1E1AA478521C335446749D8E69C789F3AD5FDD7DAF5F68D288BCDC116BF6606F56D6CAB6E82F681A1870739B3105AF995C8BFA0877FD2A20B9D77C835C7061F31D7B25BCB77E05E5B241FDFC02723BD6A15C38C45E0B245D74EB78EB489AA00D784269D5581B88C7DF6F2928DABC53FA192CD90CAC320C7176658CEBC84190335DBB7F98D15F893275A7A61D0B4');
INSERT INTO "users" VALUES(1,40,10,X'41282D49F957F2619D277971CD8A218D03F2698EDE5DEB36F19A86CAC49C973458B996E9C4342AFF21A3C6D4625F69F92754B93A9CC82E785924DE01E6209097095459FA23DDE607A118363E466A4130');
CREATE INDEX ix_audit_population ON audit (population);
CREATE INDEX ix_audit_run ON audit (run);
CREATE INDEX ix_runs_population_id_state ON runs (population_id, state);
CREATE UNIQUE INDEX uq_runs_key ON runs (key_commitment) WHERE noise_source <> 'seeded';
CREATE UNIQUE INDEX uq_rounds_committed_noise_row ON rounds (run_seq, noise_row) WHERE state = 'committed';
CREATE UNIQUE INDEX uq_rounds_one_open ON rounds (run_seq) WHERE state = 'open';
CREATE TRIGGER audit_append BEFORE INSERT ON audit WHEN NEW.id <> (SELECT count FROM head) + 1 BEGIN SELECT RAISE(ABORT, 'the audit log only grows at its end'); END;
CREATE TRIGGER audit_keep BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stay BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count <> OLD.count + 1 BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER head_stay BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER rounds_keep BEFORE UPDATE ON rounds WHEN OLD.state <> 'open' BEGIN SELECT RAISE(ABORT, 'a closed round does not change'); END;
CREATE TRIGGER rounds_stay BEFORE DELETE ON rounds BEGIN SELECT RAISE(ABORT, 'rounds are not removed'); END;
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER participations_stay BEFORE DELETE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER users_keep BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE TRIGGER users_stay BEFORE DELETE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
COMMIT;
